/** Runs the files of docs/SCALING.md for load balancers, in front of three nodes. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { memory, serve, type AnyPeer, type Engine, type Server } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { examplesOf } from "../readme/examples.js";
import { aptInstall, onPath } from "../support/debian.js";
import { freePort } from "../support/ports.js";
import { Relay } from "../support/relay.js";

const NAMES = ["n1", "n2", "n3"];
const TOPIC = "news";

/** How each program is started with a file. */
const ARGUMENTS: Record<string, (file: string, folder: string) => string[]> = {
  nginx: (file, folder) => ["-p", folder, "-c", file, "-e", "stderr", "-g", "daemon off; pid nginx.pid;"],
  haproxy: (file) => ["-f", file, "-db"],
};

const FILES = (await examplesOf("docs/SCALING.md"))
  .filter(({ name }) => /\.(conf|cfg)$/.test(name))
  .map((file) => ({ ...file, program: /^[a-z]+/.exec(file.name)![0], hasAffinity: file.name.includes("-affinity.") }));

/** A node of the fleet, behind a relay that can lose its network. */
interface Node {
  readonly name: string;
  readonly server: Server<any, any, any>;
  readonly relay: Relay;
}

async function startNode(name: string, engine: Engine): Promise<Node> {
  const server: Server<any, any, any> = await serve<any, any, any>({
    port: 0,
    engine,
    session: { route: name },
    topics: () => ({ log: { length: 100, ttlMs: 60_000 } }),
    methods: {
      where: () => name,
      join: ({ since }: { since?: string }, { peer }: { peer: AnyPeer }) => server.topic(TOPIC).join(peer, { since }),
    },
  });
  return { name, server, relay: await Relay.to(server.url) };
}

let nodes: Node[];
let peers: AnyPeer[];
let url: string;

/** Connects through the load balancer. */
async function open(query = "", options: object = {}): Promise<AnyPeer> {
  const peer = (await connect<any, any>(`${url}${query}`, options)) as AnyPeer;
  peers.push(peer);
  return peer;
}

const whereIs = (peer: AnyPeer): Promise<unknown> => peer.request("where");

/** Returns the file with the ports of this test, and with paths that any user may write to. */
function placed(file: string, port: number): string {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${kind};`);
  const ports = [port, ...nodes.map(({ relay }) => relay.port)];
  return file
    .replace(/\b800([0-3])\b/g, (_, i: string) => String(ports[Number(i)]))
    .replace("http {", `http { access_log off; ${temporary.join(" ")}`);
}

it("there is a file for each program, and one with affinity", () => {
  const names = FILES.map(({ name }) => name);
  expect(names).toEqual(["nginx.conf", "nginx-affinity.conf", "haproxy.cfg", "haproxy-affinity.cfg"]);
});

describe.each(FILES)("$name", ({ program, hasAffinity, code }) => {
  let path: string;
  let folder: string;
  let child: ChildProcess;
  let exited: Promise<unknown>;
  let output = "";

  beforeAll(async () => {
    if (onPath(program).length === 0) await aptInstall(program);
    // Debian has them in /usr/sbin, which is not on the PATH of every user.
    const [found] = [...onPath(program), `/usr/sbin/${program}`];
    path = found!;
    folder = await mkdtemp(join(tmpdir(), "reciproc-balancer-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  beforeEach(async () => {
    peers = [];
    const engine = memory();
    nodes = await Promise.all(NAMES.map((name) => startNode(name, engine)));
    const port = await freePort();
    url = `ws://127.0.0.1:${port}/`;
    const file = join(folder, "balancer.conf");
    await writeFile(file, placed(code, port));
    output = "";
    child = spawn(path, ARGUMENTS[program]!(file, folder), { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout!, child.stderr!])
      stream.on("data", (data: Buffer) => (output += data.toString()));
    exited = once(child, "exit");
    const serves = vi.waitFor(async () => {
      const { status } = await fetch(`http://127.0.0.1:${port}/`);
      if (status >= 500) throw new Error(`the balancer answers ${status}`);
    });
    await Promise.race([serves, exited.then(() => Promise.reject(new Error(`the balancer ended:\n${output}`)))]);
  });
  afterEach(async ({ task }) => {
    await Promise.all(peers.map((peer) => peer.close()));
    await Promise.all(nodes.flatMap(({ relay, server }) => [relay.close(), server.close()]));
    child.kill("SIGTERM");
    await exited;
    if (task.result?.state === "fail") process.stderr.write(output);
  });

  it("brings clients to all nodes, and passes on host and origin", async () => {
    const clients = await Promise.all(Array.from({ length: 12 }, () => open()));
    expect(new Set(await Promise.all(clients.map(whereIs)))).toEqual(new Set(NAMES));
    await expect(open("", { headers: { origin: "https://evil.example" } })).rejects.toMatchObject({ status: 403 });
    await open("", { headers: { origin: url.replace(/^ws(.*)\/$/, "http$1") } });
  });

  it.each<[end: string, endOf: (home: Node) => Promise<void>]>([
    ["dies", ({ relay }) => relay.close()],
    ["drains", ({ relay, server }) => server.drain({ retryMs: 1 }).then(() => relay.close())],
  ])("brings the client of a node that %s to another one, where it gets what it missed", async (_end, endOf) => {
    const got: number[] = [];
    const outcomes: unknown[] = [];
    let since: string | undefined;
    const client = await open("", {
      methods: {
        said: ({ n, at }: { n: number; at: string }) => {
          got.push(n);
          since = at;
        },
      },
      onOpen: async (server: { request(method: string, params: object): Promise<{ outcome: string }> }) => {
        outcomes.push((await server.request("join", { since })).outcome);
      },
    });
    const home = nodes.find(({ server }) => server.peers.size > 0)!;
    const other = nodes.find((node) => node !== home)!;
    await other.server.topic(TOPIC).publish("said", { n: 1 });
    await expect.poll(() => got).toEqual([1]);

    await endOf(home);
    await other.server.topic(TOPIC).publish("said", { n: 2 });
    await expect.poll(() => got).toEqual([1, 2]);
    await expect.poll(() => outcomes).toEqual(["gap", "complete"]);
    expect(await whereIs(client)).not.toBe(home.name);
  });

  if (!hasAffinity) return;

  it("brings a client that lost its socket to the node that has its session", async () => {
    const clients = await Promise.all(Array.from({ length: 6 }, () => open("?room=lobby")));
    const homes = await Promise.all(clients.map(whereIs));
    const events = clients.map((): string[] => []);
    for (const [i, client] of clients.entries())
      for (const event of ["resume", "lost"] as const) client.on(event, () => void events[i]!.push(event));
    for (let cuts = 1; cuts <= 3; cuts++) {
      for (const { relay } of nodes) relay.cut();
      const resumed = Array.from({ length: cuts }, () => "resume");
      await expect.poll(() => events).toEqual(clients.map(() => resumed));
      expect(await Promise.all(clients.map(whereIs))).toEqual(homes);
    }
  });

  it("brings a client to another node if its URL names one that is gone or unknown", async () => {
    expect(NAMES).toContain(await whereIs(await open("?node=n9")));
    await nodes[0]!.relay.close();
    expect(["n2", "n3"]).toContain(await whereIs(await open("?node=n1")));
  });
});
