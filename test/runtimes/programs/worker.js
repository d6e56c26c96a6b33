/** Runs a check for each request to a worker of workerd: `POST /check` with its options as JSON. Returns its result as JSON. */
import * as entry from "../../../dist/index.js";
import { CHECKS } from "./checks.js";

export default {
  async fetch(request) {
    const check = CHECKS[new URL(request.url).pathname.slice(1)];
    try {
      return Response.json(await check(entry, await request.json()));
    } catch (error) {
      return Response.json({ failed: String(error?.stack ?? error) });
    }
  },
};
