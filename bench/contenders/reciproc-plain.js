/** reciproc with one message in each frame, and without a session. */
import { connector as connectorOf } from "./reciproc-packed.js";

export * from "./reciproc-packed.js";
export const connector = (url, methods) => connectorOf(url, methods, { link: "plain" });
