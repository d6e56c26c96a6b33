/** The URLs of the page's connections. The server finds the connections to cut by the name in the URL. */

/** The name of this page, which only the server gets. */
const NAME = crypto.getRandomValues(new Uint32Array(4)).join("-");

/** Returns the URL of a path, for a connection of this page. `node`: where it shall lead, if that node is there. */
export function wire(path: string, node?: string): string {
  return `${path}?page=${NAME}${node === undefined ? "" : `&node=${node}`}`;
}
