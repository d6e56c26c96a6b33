/** Express comes without types; this is what the tests use of it. */
declare module "express" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  interface App {
    (request: IncomingMessage, response: ServerResponse): void;
    get(
      path: string,
      handler: (request: IncomingMessage, response: ServerResponse & { send(body: string): void }) => void,
    ): void;
  }
  export default function express(): App;
}
