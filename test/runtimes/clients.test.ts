/** The built package in other runtimes, as a client: by the entry for all runtimes, and by the entry for Node where it runs. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild-wasm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePort } from "../support/ports.js";
import { farEnd } from "./far-end.js";
import { clientIn, RUNTIMES, startWorkerd, type Check, type Listening } from "./runtimes.js";

/** Eight times `maxUnsentBytes` of the client, one more message, and the overhead of the runtime for each frame. */
const MOST_UNSENT = 8 * 2 ** 20 + 2 ** 18;

describe.concurrent.each(RUNTIMES.flatMap((runtime) => [[runtime, "index"] as const, [runtime, "node"] as const]))(
  "%s, by dist/%s.js",
  (runtime, entry) => {
    let client: ReturnType<typeof clientIn>;
    beforeAll(() => void (client = clientIn(runtime, entry)));
    afterAll(() => client[Symbol.asyncDispose]());
    describeClient((name, options) => client.check(name, options));
  },
);

describe.concurrent("workerd", () => {
  let folder: string;
  let workerd: Listening;
  let port: number;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "reciproc-workerd-"));
    await build({
      entryPoints: [join(import.meta.dirname, "programs/worker.js")],
      bundle: true,
      format: "esm",
      platform: "browser",
      target: "es2022",
      outfile: join(folder, "worker.js"),
      logLevel: "error",
    });
    await writeFile(join(folder, "worker.capnp"), CONFIGURATION);
    workerd = await startWorkerd(join(folder, "worker.capnp"));
    ({ port } = JSON.parse(workerd.firstLine) as { port: number });
  });

  afterAll(async () => {
    await workerd[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  const inWorker: Check = async (name, options) => {
    const request = { method: "POST", body: JSON.stringify(options) };
    const response = await fetch(`http://127.0.0.1:${port}/${name}`, request);
    return response.json();
  };

  describeClient(inWorker);

  it("lets calls time out in each of several requests, at once and one after the other", async () => {
    await using far = await farEnd();
    const timeout = (): Promise<unknown> => inWorker("timeout", { url: far.url });
    expect(await Promise.all([timeout(), timeout(), timeout()])).toEqual(Array(3).fill("TimeoutError"));
    expect(await timeout()).toBe("TimeoutError");
  });
});

const CONFIGURATION = `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.js")],
  compatibilityDate = "2026-01-01",
);
`;

type FarEnd = Awaited<ReturnType<typeof farEnd>>;

const REFUSING = `ws://127.0.0.1:${await freePort()}`;
const LOST = { code: 1006, call: "ConnectionLostError" };
const DEAD = { call: "TimeoutError", code: 1006 };
const WHOLE = { nested: 42, echoes: true, heard: true, isWhole: true, code: 4000, reason: "done" };
const ORDERED = Array.from({ length: 300 }, (_, i) => i);

function describeClient(run: Check): void {
  it.each<[what: string, program: string, options: (far: FarEnd) => object, outcome: unknown]>([
    ["calls and is called, packed", "bothWays", ({ url }) => ({ url, link: "packed" }), WHOLE],
    ["calls and is called, plain", "bothWays", ({ url }) => ({ url, link: "plain" }), WHOLE],
    ["needs no subprotocol", "withoutSubprotocol", ({ bareUrl }) => ({ url: bareUrl }), ["echo"]],
    ["rejects if a port refuses", "failingOpen", () => ({ url: REFUSING }), { name: "ConnectError", hasCause: true }],
    ["reports a loss", "lostConnection", ({ url }) => ({ url, link: "packed" }), LOST],
    [
      "closes on a network that carries nothing",
      "deadNetwork",
      ({ url, relayUrl }) => ({ url: relayUrl, direct: url, link: "packed" }),
      DEAD,
    ],
    [
      "sends queued messages, in order, when the server reads again",
      "pausedServer",
      ({ url }) => ({ url, link: "packed" }),
      ORDERED,
    ],
  ])("%s", async (_what, program, options, outcome) => {
    await using far = await farEnd();
    expect(await run(program, options(far))).toEqual(outcome);
  });

  it("closes when a server does not read, and bounds its queue", async () => {
    await using far = await farEnd();
    const { state, mostUnsent } = await run("slowServer", { url: far.url, link: "plain" });
    expect(state).toBe("closed");
    expect(mostUnsent).toBeGreaterThan(2 ** 18);
    expect(mostUnsent).toBeLessThan(MOST_UNSENT);
  });
}
