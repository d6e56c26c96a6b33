/** Serves the built page, and starts `reciproc bridge`, which starts a language server for each page that connects. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { servePage } from "../page-server.js";

const fileOf = (path) => fileURLToPath(new URL(`node_modules/${path}`, import.meta.url));
const languageServer = fileOf("vscode-langservers-extracted/bin/vscode-css-language-server");

// The same as: npx reciproc bridge --port 0 --path /css -- npx vscode-css-language-server --stdio
const options = ["--port", "0", "--path", "/css"];
const args = [
  fileOf("reciproc/dist/cli/main.js"),
  "bridge",
  ...options,
  "--",
  process.execPath,
  languageServer,
  "--stdio",
];
const bridge = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
const [line] = await once(createInterface(bridge.stdout), "line");
const address = line.replace("listening on ", "");

// The page asks for the address of the bridge, which gets another port whenever it starts.
const http = await servePage(new URL("build/", import.meta.url), { "/bridge": () => address });
console.log(`editor: http://localhost:${http.address().port}/`);

process.once("SIGTERM", async () => {
  http.close();
  bridge.kill("SIGINT");
  await once(bridge, "exit");
  process.exit();
});
