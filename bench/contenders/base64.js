/** Bytes as base64 strings, over reciproc: what an application does that has no `bytes`. */
import { call, serve as listen, upload as uploadParts } from "./reciproc-packed.js";

export * from "./reciproc-packed.js";

const decode = (text) => Buffer.from(text, "base64");

function encode({ buffer, byteOffset, length }) {
  return Buffer.from(buffer, byteOffset, length).toString("base64");
}

async function* encodeAll(parts) {
  for await (const part of parts) yield encode(part);
}

export const serve = (methods) => listen({ ...methods, received: (text) => decode(text).length }, decode);
export const put = (peer, view) => call(peer, "received", encode(view));
export const upload = (peer, parts) => uploadParts(peer, encodeAll(parts));
