/** The place of a publication in the log of its topic. Each member gets it as `at`. */

/**
 * The place of an entry: the epoch of its log, and its offset. The first entry of an epoch has offset 1, and each next one 1 more. The
 * place before the first entry has offset 0.
 */
export interface Position {
  /** 1 to 64 of `[A-Za-z0-9_-]`. Two lives of a log never have the same epoch, and neither have two logs. */
  readonly epoch: string;
  readonly offset: number;
}

/** Returns the text of a position: `<epoch>.<offset>`. */
export function textOf({ epoch, offset }: Position): string {
  return `${epoch}.${offset}`;
}

/** Returns the position in a text; `undefined` for any other value. */
export function positionOf(at: unknown): Position | undefined {
  const [, epoch, offset] = (typeof at === "string" && /^([A-Za-z0-9_-]{1,64})\.(\d{1,15})$/.exec(at)) || [];
  return epoch === undefined ? undefined : { epoch, offset: Number(offset) };
}
