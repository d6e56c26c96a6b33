/** Where the page connects to. Its server knows by the name in the address which connections to cut. */

/** Told to nobody but the server. */
const NAME = crypto.getRandomValues(new Uint32Array(4)).join("-");

/** The address of that path, for a connection of this page. */
export function wire(path: string): string {
  return `${path}?page=${NAME}`;
}
