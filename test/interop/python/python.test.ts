/** Hand-written programs in Python: a client and a server over Debian's `websockets`, and a client over HTTP with `requests`. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { serve } from "../../../src/node.js";
import { connect } from "../../support/connect.js";
import { aptInstall, onPath, run } from "../../support/debian.js";
import { gate, type Gate } from "../../support/turns.js";
import { behavesAsClient, type ThirdPartyClient } from "../clients/behaviour.js";
import { behavesAsServer, type ForeignServer } from "../servers/behaviour.js";
import { Inbox } from "../../support/inbox.js";

// Local addresses must not go through a proxy of the machine.
const env = { ...process.env, NO_PROXY: "*", PYTHONUTF8: "1", PYTHONDONTWRITEBYTECODE: "1" };

let python: string;
beforeAll(async () => {
  const found = (await find()) ?? ((await aptInstall("python3-websockets", "python3-requests")) && (await find()));
  if (!found) throw new Error("install Python with `websockets` and `requests`: none was found or could be installed");
  python = found;
});

/** Finds a Python that has the packages. Debian's own has those of apt-get, even if another is first on the PATH. */
async function find(): Promise<string | undefined> {
  for (const path of [...onPath("python3"), "/usr/bin/python3"]) {
    if (await run([path, "-c", "import requests, websockets"], "ignore")) return path;
  }
  return undefined;
}

/** Starts a program that the test controls, by lines of JSON in both directions. Calls `said` for each printed line. */
function startPuppet(script: string, args: string[], said: (what: any) => void) {
  const path = join(import.meta.dirname, script);
  const child = spawn(python, [path, ...args], { env, stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  createInterface(child.stdout).on("line", (line) => said(JSON.parse(line)));
  return {
    send: (command: object) => child.stdin.write(`${JSON.stringify(command)}\n`),
    async stop(): Promise<void> {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

async function open(url: string): Promise<ThirdPartyClient> {
  const [opened, closed, pushed] = [gate(), gate(), new Inbox()];
  const calls: Gate<unknown>[] = [];
  const puppet = startPuppet("client.py", [url], (said) => {
    if ("open" in said) opened.resolve();
    else if ("pushed" in said) pushed.push(said.pushed);
    else if ("closed" in said) closed.resolve();
    else if ("error" in said) calls[said.settled]!.reject(said.error);
    else calls[said.settled]!.resolve(said.result);
  });
  await opened.promise;
  const ask = (what: object): Promise<unknown> => {
    const call = gate<unknown>();
    puppet.send({ id: calls.push(call) - 1, ...what });
    return call.promise;
  };
  return {
    call: (method, params) => ask({ call: method, params }),
    async batch() {
      const members = [
        ["add", [1, 2], true],
        ["note", ["in a batch"], false],
        ["attic", null, true],
      ];
      const [sum, failed] = (await ask({ batch: members })) as [{ result: unknown }, { error: unknown }];
      return [sum.result, failed.error];
    },
    notify: (method, params) => puppet.send({ notify: method, params }),
    pushed,
    async close() {
      puppet.send({ close: true });
      await closed.promise;
      await puppet.stop();
    },
  };
}

describe("a Python client", () => {
  behavesAsClient({ open, ids: [0, 1, 2], pending: "rejected", called: "answers" });
});

async function start(): Promise<ForeignServer> {
  const port = gate<number>();
  const noted = new Inbox();
  const puppet = startPuppet("server.py", [], (said) => {
    if ("port" in said) port.resolve(said.port);
    else noted.push(said.noted);
  });
  return {
    url: `ws://127.0.0.1:${await port.promise}`,
    noted,
    cut: () => void puppet.stop(),
    [Symbol.asyncDispose]: puppet.stop,
  };
}

describe("a Python server", () => {
  behavesAsServer({ start, agrees: false, calls: true });

  it("calls the client by a batch before it answers", async () => {
    await using server = await start();
    const methods = { confirm: ({ question }: { question: string }) => `yes to ${question}` };
    await using peer = await connect(server.url, { methods });
    expect(await peer.request("twice")).toEqual(["yes to a", "yes to b"]);
  });
});

it("runs a client of an introduction to JSON-RPC, over HTTP, with only the address changed", async () => {
  const methods = { subtract: ([a, b]: [number, number]) => a - b };
  await using server = await serve({ port: 0, path: "/rpc", methods });
  const code = await readFile(join(import.meta.dirname, "seeds/client.py"), "utf8");
  const changed = code.replace("http://localhost:5000/rpc", server.url.replace("ws:", "http:"));
  expect(changed).not.toBe(code);
  expect((await promisify(execFile)(python, ["-c", changed], { env })).stdout).toBe("19\n");
});
