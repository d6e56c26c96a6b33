/** Plain HTTP: the built page, and the login. */
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { cookieOf, nameIn } from "./store.js";

const PAGE = join(process.cwd(), "build/page");
const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const files = new Map(
  readdirSync(PAGE, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .map((path) => [
      path.slice(PAGE.length).replaceAll("\\", "/"),
      { type: TYPES[extname(path)] ?? "text/plain", body: readFileSync(path) },
    ]),
);

export const http = createServer(async (request, response) => {
  const { method, headers } = request;
  const path = new URL(request.url ?? "/", "http://localhost").pathname;
  if (method === "POST" && path === "/login") {
    let name = "";
    for await (const chunk of request) if ((name += chunk).length > 40) break;
    if (name.trim() === "" || name.length > 40) return response.writeHead(400).end();
    return response.writeHead(204, { "Set-Cookie": cookieOf(name.trim()) }).end();
  }
  if (method === "POST" && path === "/logout") {
    return response.writeHead(204, { "Set-Cookie": "user=; Path=/; Max-Age=0" }).end();
  }
  if (path === "/me") {
    const name = nameIn(headers.cookie);
    return response.setHeader("Content-Type", "application/json").end(JSON.stringify({ name }));
  }
  const file = files.get(path === "/" ? "/index.html" : path);
  if (file === undefined) return response.writeHead(404).end();
  return response.setHeader("Content-Type", file.type).end(file.body);
});
