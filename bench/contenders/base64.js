/** Bytes as base64 strings, over reciproc: what an application does that has no `bytes`. */
import { connectPacked, serve as listen } from "./reciproc.js";

const decode = (text) => Buffer.from(text, "base64");

export function serve(methods, peers) {
  return listen({ ...methods, received: (text) => decode(text).length }, peers, decode);
}

export async function connect(url, methods) {
  const peer = await connectPacked(url, methods);
  return {
    ...peer,
    put: (view) => peer.call("received", toBase64(view)),
    upload: (parts) => peer.upload(encoded(parts)),
  };
}

async function* encoded(parts) {
  for await (const part of parts) yield toBase64(part);
}

function toBase64({ buffer, byteOffset, length }) {
  return Buffer.from(buffer, byteOffset, length).toString("base64");
}
