/** The URLs of the page's connections. The server finds the connections to cut by the name in the URL. */

/** The name of this page, which only the server gets. */
const NAME = crypto.getRandomValues(new Uint32Array(4)).join("-");

/** Returns the URL of a path, for a connection of this page. */
export function wire(path: string): string {
  return `${path}?page=${NAME}`;
}
