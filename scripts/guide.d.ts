/** A code block of a document whose first line names its file, and the lines of the block of text after it. */
export interface Block {
  readonly language: string;
  readonly name: string;
  readonly code: string;
  readonly output: readonly string[] | undefined;
}

export function blocksOf(markdown: string): Block[];

/** Returns the code of each file of a guide, by its name, as it is after the last block. Throws if a `diff` does not fit. */
export function filesOf(markdown: string): Map<string, string>;

/** Returns the steps of a guide, each with the text of the guide up to its end. */
export function stepsOf(markdown: string): { title: string; text: string }[];
