/** The initial texts of the documents. Each has one mistake, for the language server to find. */
import type { DocumentName } from "./api.js";

const css = `/*
 * Everybody on this page writes here: the coloured carets are the others.
 * A language server reads along. It calls this page, and this page calls it.
 *
 * 1. One word below is misspelt. Mend it, and it is mended for everybody.
 * 2. In the empty line type "bor", and take what you are offered.
 * 3. Point at a property to read about it.
 */
.board {
  colr: rebeccapurple;
  display: grid;
  place-items: center;
  
}

.board .cursor {
  position: absolute;
  left: calc(var(--x) * 100%);
  transition: left 70ms linear;
}

@media (prefers-reduced-motion: reduce) {
  .board .cursor {
    transition: none;
  }
}
`;

const json = `{
  "port": 3000,
  "host": "127.0.0.1",
  "path": "/rpc",
  "link": "pakced",
  "origins": ["https://example.org"],
  "limits": {
    "maxConnections": 100,
    "maxMessageBytes": 1048576
  }
}
`;

export const texts: Readonly<Record<DocumentName, string>> = { "welcome.css": css, "server.json": json };
