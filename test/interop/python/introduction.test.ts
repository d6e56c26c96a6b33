/**
 * Clients in Python with `requests`, over plain HTTP: one from an introduction to JSON-RPC, and one of this project.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { serve } from "../../../src/node.js";
import { aptInstall, onPath, run } from "../../support/debian.js";
import { failure, result } from "../../support/raw.js";

const CURE = "no Python with `requests` found and none could be installed; install python3-requests";

let python: string;
beforeAll(async () => {
  const found = (await findPython()) ?? ((await aptInstall("python3-requests")) ? await findPython() : undefined);
  if (found === undefined) throw new Error(CURE);
  python = found;
}, 600_000);

/** Finds a Python that has `requests`. Debian's own has the packages of apt-get, whatever precedes it on the PATH. */
async function findPython(): Promise<string | undefined> {
  for (const path of [...onPath("python3"), "/usr/bin/python3"]) {
    if (await run([path, "-c", "import requests"], "ignore")) return path;
  }
  return undefined;
}

/** Returns the output of a script. */
async function print(...args: string[]): Promise<string> {
  // Local addresses must not go through a proxy of the machine.
  const env = { ...process.env, NO_PROXY: "*", PYTHONUTF8: "1" };
  return (await promisify(execFile)(python, args, { env })).stdout;
}

function script(name: string): URL {
  return new URL(`seeds/${name}`, import.meta.url);
}

const updated: unknown[] = [];
const methods = {
  subtract: (params: [number, number] | { a: number; b: number }) =>
    Array.isArray(params) ? params[0] - params[1] : params.a - params.b,
  echo: ([text]: [string]) => text,
  update: (params: number[]) => void updated.push(params),
  sum: (params: number[]) => params.reduce((total, value) => total + value, 0),
  notify: (params: string[]) => void updated.push(params),
};

describe("a client written in Python", () => {
  it("runs the example of the introduction, with only the address changed", async () => {
    await using server = await serve({ port: 0, path: "/rpc", methods });
    const code = await readFile(script("client.py"), "utf8");
    const address = "http://localhost:5000/rpc";
    expect(code.split(address)).toHaveLength(2);
    expect(await print("-c", code.replace(address, server.url.replace("ws:", "http:")))).toBe("19\n");
  });

  it("makes every call that the introduction describes", async () => {
    await using server = await serve({ port: 0, path: "/rpc", methods });
    updated.length = 0;
    const answers = await print(script("calls.py").pathname, server.url.replace("ws:", "http:"));
    expect(
      answers
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      [200, result(1, 19)],
      [200, result(2, 19)],
      [200, result(1, "Hello")],
      [200, failure(1, -32601, "Method not found")],
      [204, null],
      [200, result(null, null)],
      [200, [result(1, 3), failure(2, -32601, "Method not found")]],
      [200, failure(null, -32700, "Parse error")],
    ]);
    expect(updated).toEqual([[1, 2, 3], [1, 2, 3], ["hello"]]);
  });
});
