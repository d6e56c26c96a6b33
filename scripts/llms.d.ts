/** Returns the text of `llms.txt`. `hrefOf` returns the address of a document, which is given as a path such as `guides/rooms`. */
export function llmsText(hrefOf?: (document: string) => string): Promise<string>;
