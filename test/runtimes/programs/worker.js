/** Runs a check for each request to a worker of workerd: `POST /check` with its options as JSON. Returns its result as JSON. */
import * as entry from "../../../dist/index.js";
import { run } from "./checks.js";

export default {
  async fetch(request) {
    try {
      return Response.json(await run(entry, new URL(request.url).pathname.slice(1), await request.json()));
    } catch (error) {
      return Response.json({ failed: String(error?.stack ?? error) });
    }
  },
};
