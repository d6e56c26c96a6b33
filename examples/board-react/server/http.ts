/** Plain HTTP: the built page, and the login. */
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { extname, join, relative, sep } from "node:path";
import { cookieOf, nameIn } from "./store.js";

const PAGE = join(process.cwd(), "build/page");
const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** The files of the page, by path. Nothing else is served. */
const files = new Map(
  readdirSync(PAGE, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .map((path) => [`/${relative(PAGE, path).replaceAll(sep, "/")}`, path]),
);

/** Listens on a port of this machine. `onLogout` is called with the name of a user who logs out. */
export async function startHttp(onLogout: (name: string) => void): Promise<Server> {
  const http = createServer(async (request, response) => {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    const name = nameIn(request.headers.cookie);
    switch (`${request.method} ${path}`) {
      case "POST /login": {
        const wanted = await textOf(request);
        if (wanted === undefined) return response.writeHead(400).end();
        return response.writeHead(204, { "Set-Cookie": cookieOf(wanted) }).end();
      }
      case "POST /logout":
        if (name !== null) onLogout(name);
        return response.writeHead(204, { "Set-Cookie": "user=; Path=/; Max-Age=0" }).end();
      case "GET /me":
        return response.setHeader("Content-Type", "application/json").end(JSON.stringify({ name }));
    }
    const file = files.get(path === "/" ? "/index.html" : path);
    if (file === undefined) return response.writeHead(404).end();
    return response.setHeader("Content-Type", TYPES[extname(file)] ?? "text/plain").end(readFileSync(file));
  });
  http.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
  await once(http, "listening");
  return http;
}

/** Returns the body of a request; `undefined` if it is empty, or longer than a name. */
async function textOf(request: IncomingMessage): Promise<string | undefined> {
  let text = "";
  for await (const chunk of request) if ((text += chunk).length > 40) return undefined;
  return text.trim() || undefined;
}
