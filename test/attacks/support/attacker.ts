/** An attacker in a process of its own (`attacker.mjs`). */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const SCRIPT = fileURLToPath(new URL("attacker.mjs", import.meta.url));

/** A flood of messages. */
export interface Flood {
  url: string;
  protocols?: string[];
  /** The texts that each connection sends when it opens. */
  first?: string[];
  /** The texts that are sent in turn. `$i` is replaced by a unique number. */
  texts?: string[];
  /** How many are sent each `everyMs`, on each connection. */
  burst?: number;
  everyMs?: number;
  connections?: number;
  /** Whether the responses are read. */
  reads?: boolean;
}

/** The result of a flood. */
export interface Damage {
  readonly sent: number;
  /** Opened connections, including those that were opened again. */
  readonly opened: number;
  /** Number of responses by error code, or `result`. */
  readonly answers: Readonly<Record<string, number>>;
  /** Number of closes by code and reason. */
  readonly closes: Readonly<Record<string, number>>;
}

/** Many TCP connections at once. */
export interface Knock {
  port: number;
  count: number;
  /** The text that each connection writes. */
  text: string;
  /** Whether each writes byte by byte. */
  dribbles?: boolean;
  /** Whether each disconnects when it has a response and has written all bytes. */
  hangsUp?: boolean;
}

/** A flood of bytes over one connection. */
export interface Pour {
  port: number;
  /** The text of the handshake. */
  head: string;
  /** The bytes that are written once, before the flood. */
  first: Buffer;
  /** The bytes that are written again and again. */
  chunk: Buffer;
  bytesPerSecond: number;
}

/** Connections that only read. */
export interface Reading {
  port: number;
  connections: number;
  /** The handshake that each writes. */
  text: string;
  /** The number of bytes to await after the handshake. */
  bytes: number;
}

/** An attacker, which runs one command at a time. */
export interface Attacker extends AsyncDisposable {
  /** Begins a flood. Resolves when all its connections are open. */
  start(flood: Flood): Promise<void>;
  pause(): Promise<void>;
  goOn(): Promise<void>;
  /** Ends the flood. */
  stop(): Promise<Damage>;
  /** Begins a flood of bytes. Resolves when its connection is open. */
  pour(pour: Pour): Promise<void>;
  /** Ends that flood. Resolves with the written bytes and the number of connections. */
  stopPouring(): Promise<{ bytes: number; opened: number }>;
  /** Opens connections that read. Resolves when all are open. */
  read(reading: Reading): Promise<void>;
  /** Resolves when each of them has all bytes or is closed, with the number of bytes of each. */
  allRead(): Promise<number[]>;
  /** Resolves when all connections are closed, with the number of each response. */
  knock(knock: Knock): Promise<Record<string, number>>;
}

/** Starts the process. Disposing of it ends it. */
export async function attacker(): Promise<Attacker> {
  const child = fork(SCRIPT, { execArgv: [] });
  const exited = once(child, "exit");
  await once(child, "spawn");
  const ask = async <T>(command: string, options: object = {}): Promise<T> => {
    const answered = once(child, "message");
    child.send({ command, options });
    const [{ result, failure }] = (await answered) as [{ result: T; failure?: string }];
    if (failure !== undefined) throw new Error(failure);
    return result;
  };
  return {
    start: (flood) => ask("start", flood),
    pause: () => ask("pause"),
    goOn: () => ask("goOn"),
    stop: () => ask("stop"),
    pour: ({ first, chunk, ...pour }) =>
      ask("pour", { ...pour, first: first.toString("base64"), chunk: chunk.toString("base64") }),
    stopPouring: () => ask("stopPouring"),
    read: (reading) => ask("read", reading),
    allRead: () => ask("allRead"),
    knock: (knock) => ask("knock", knock),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
