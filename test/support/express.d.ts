/** Types for the parts of Express that the tests use, because Express has none. */
declare module "express" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  type Handler = (request: IncomingMessage, response: ServerResponse & { send(body: string): void }) => void;

  interface App {
    (request: IncomingMessage, response: ServerResponse): void;
    get(path: string, handler: Handler): void;
    post(path: string, ...handlers: Handler[]): void;
    all(path: string, ...handlers: Handler[]): void;
    use(...parts: (string | Handler)[]): void;
  }
  function express(): App;
  /** Body parsers. */
  namespace express {
    function json(options?: { strict?: boolean }): Handler;
    function text(options: { type: string }): Handler;
    function raw(options: { type: string }): Handler;
  }
  export default express;
}
