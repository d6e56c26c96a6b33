export const CONTINUATION = 0;
export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

export function frameHead(opcode: number, length: number | bigint, isLast?: boolean): Buffer;
export function frame(opcode: number, payload: string | Uint8Array, isLast?: boolean): Buffer;
export function upgradeText(host: string, ...more: string[]): string;

/** The methods of a server under attack. */
export const METHODS: Readonly<Record<"here" | "note" | "never" | "still", () => unknown>>;

/** A flood over a WebSocket. */
export interface Flood {
  readonly name: string;
  /** Whether the client offers `reciproc.v1`. */
  readonly isPacked: boolean;
  /** The frames that are sent once, before the flood. */
  readonly first: Buffer;
  /** The bytes that are sent again and again. */
  readonly chunk: Buffer;
  /** The number of frames, of messages of a pack, or of requests in them. */
  readonly units: number;
}

/** The floods over a WebSocket. */
export const FLOODS: readonly Flood[];
/** The floods of requests over one HTTP connection, which waits for no response. */
export const PIPELINES: readonly Pick<Flood, "name" | "chunk" | "units">[];
