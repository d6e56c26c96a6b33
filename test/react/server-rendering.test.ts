/** Rendering on a server, with both versions of React: no socket is opened, and no timer is left. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { build } from "../package/bundlers.js";
import { aliasesOf, PACKAGES, type ReactVersion } from "./bundle.js";

/** Beside the packages, so that Node finds React. */
const OUTPUT = join(PACKAGES, ".server-rendering");

const PROGRAM = `
  import { renderToString } from "react-dom/server";
  import { createReciproc } from "reciproc/react";
  const { Provider, usePeer, useStatus, useStream, useTopicMembers } = createReciproc();
  let call;
  function Page() {
    const { items, done } = useStream("log");
    const { members } = useTopicMembers("den");
    call ??= usePeer().request("echo", [1]).catch((error) => error.name);
    usePeer();
    return <p>{useStatus()} {JSON.stringify({ items, done, members })}</p>;
  }
  const url = process.argv[2] ?? "/rpc";
  console.log(renderToString(<Provider url={url}><Page /></Provider>).replaceAll("&quot;", "'").replaceAll("<!-- -->", ""));
  console.log(await call);
  const timers = process.getActiveResourcesInfo().filter((name) => name === "Timeout");
  console.log(JSON.stringify(timers));`;

beforeAll(() => ensurePackages(import.meta.dirname), 600_000);
afterAll(() => rm(OUTPUT, { recursive: true, force: true }));

it.each([18, 19] as ReactVersion[])(
  "renders with React %i, and opens no connection",
  async (version) => {
    await mkdir(OUTPUT, { recursive: true });
    const program = join(OUTPUT, `page-${version}.mjs`);
    const { outputFiles } = await build({
      stdin: { contents: PROGRAM, resolveDir: import.meta.dirname, loader: "tsx" },
      bundle: true,
      write: false,
      format: "esm",
      platform: "node",
      target: "node20",
      jsx: "automatic",
      logLevel: "error",
      alias: aliasesOf(version),
      banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
    });
    await writeFile(program, outputFiles![0]!.contents);
    let accepted = 0;
    const listener = createServer((socket) => (accepted++, socket.destroy())).listen(0, "127.0.0.1");
    await once(listener, "listening");
    try {
      const url = `ws://127.0.0.1:${(listener.address() as AddressInfo).port}/`;
      for (const args of [[], [url]]) {
        const { stdout } = await promisify(execFile)(process.execPath, [program, ...args]);
        expect(stdout.split("\n")).toEqual([
          "<p>connecting {'items':[],'done':false}</p>",
          "ConnectionLostError",
          "[]",
          "",
        ]);
      }
      expect(accepted).toBe(0);
    } finally {
      listener.close();
    }
  },
  60_000,
);
