/** Requests by HTTP POST: by `fetch`, or with exactly the bytes of the test. */
import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";
import { portOf, readAnswer, type Answer } from "./network.js";
import { request } from "./raw.js";

/** Posts a text, bytes, or the JSON of another value to a `ws:` address. */
export function post(url: string, message: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const body = typeof message === "string" || message instanceof Uint8Array ? message : JSON.stringify(message);
  return fetch(url.replace("ws:", "http:"), {
    method: "POST",
    body: body as BodyInit,
    headers: { "Content-Type": "application/json", ...headers },
  });
}

export async function read(response: Response): Promise<[status: number, body: unknown]> {
  const text = await response.text();
  const isJson = response.headers.get("content-type") === "application/json; charset=utf-8";
  return [response.status, isJson ? JSON.parse(text) : text];
}

export async function call(
  { url }: { url: string },
  method: string,
  params?: unknown,
  headers?: Record<string, string>,
): Promise<[status: number, body: unknown]> {
  return read(await post(url, request(1, method, params), headers));
}

/** Returns the text of a POST, with exactly these headers besides the required ones and its length. */
export function postText(url: string, body: string, headers: Record<string, string> = {}): string {
  const { host, pathname } = new URL(url);
  const lines = {
    Host: host,
    "Content-Type": "application/json",
    ...("Transfer-Encoding" in headers ? {} : { "Content-Length": String(Buffer.byteLength(body)) }),
    ...headers,
  };
  const text = Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${pathname} HTTP/1.1\r\n${text.join("")}\r\n${body}`;
}

/** Opens a connection, and writes to it. The server can reset a connection that it refuses. */
export async function write(url: string, text: string | Buffer): Promise<Socket> {
  const socket = connectTcp(portOf(url), "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

/** Sends a POST exactly as given, and reads the response to its end. */
export async function postRaw(url: string, body: string, headers: Record<string, string> = {}): Promise<Answer> {
  return readAnswer(await write(url, postText(url, body, { Connection: "close", ...headers })));
}
