/** A Redis that runs. */
export interface Redis {
  /** Its address. */
  readonly url: string;
  /** Ends it. Resolves when it has ended. */
  stop(): Promise<void>;
}

export function startRedis(options?: { isDetached?: boolean; port?: number }): Promise<Redis>;
export function redisPath(): string;
