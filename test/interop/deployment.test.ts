/** Runs the unchanged files of docs/guides/deployment.md: the server behind nginx, Caddy and HAProxy, and the manifest of Kubernetes. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import type { ConnectError, Peer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { clean, compile, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { aptUnpack, onPath } from "../support/debian.js";
import { rejection } from "../support/turns.js";
import { MAIN, run as runCommand } from "../cli/program.js";

const ROOT = join(import.meta.dirname, "../..");
const PAGE = await readFile(join(ROOT, "docs/guides/deployment.md"), "utf8");
const run = promisify(execFile);

/** Lets the name lead to this machine, as the line of the page in /etc/hosts does. */
const HOSTS = `
import dns from "node:dns";
const { lookup } = dns;
dns.lookup = (name, ...rest) => lookup(name === "app.example" ? "127.0.0.1" : name, ...rest);`;

const HAPROXY = ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"];

/** The proxies, how each is started with the file of the page, what a client sees of a restart, and their Debian packages. */
const PROXIES: [name: string, args: string[], events: string[], ...packages: string[]][] = [
  [
    "nginx",
    ["-p", `${folder}/`, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"],
    ["suspend"],
    "nginx",
  ],
  ["caddy", ["run", "--config", "Caddyfile.app", "--adapter", "caddyfile"], ["suspend", "lost"], "caddy"],
  ["haproxy", ["-f", "haproxy.cfg", "-db"], ["suspend"], ...HAPROXY],
];

let server: Running;
let cert: string;

beforeAll(async () => {
  await linkPackages(import.meta.dirname);
  await extract("docs/guides/deployment.md");
  // The main file of nginx, as every installation has one. The paths are by default those of an installed nginx.
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${kind};`);
  await writeFile(
    join(folder, "nginx.conf"),
    `events {} http { ${temporary.join(" ")} access_log off; include app.conf; }`,
  );
  const [certificate] = /^ *openssl .*\n.*haproxy\.pem$/m.exec(PAGE)!;
  await run("sh", ["-e", "-c", certificate], { cwd: folder });
  cert = await readFile(join(folder, "fullchain.pem"), "utf8");
});
afterAll(clean);
beforeEach(async () => {
  server = new Running("production.js");
  await server.line(/listening/);
});
afterEach(() => server.stop());

/** Connects again while a proxy reports 503, because it counts a server as down that was not scheduled for its checks. */
async function connectThrough(origin = "https://app.example"): Promise<Peer> {
  const headers = { host: "app.example", origin, "x-forwarded-for": "6.6.6.6" };
  for (;;)
    try {
      return await connect("wss://127.0.0.1:8443/rpc", { headers, tls: { ca: cert, servername: "app.example" } });
    } catch (error) {
      if ((error as ConnectError).status !== 503) throw error;
    }
}

function statusOf(path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port: 8443, path, ca: cert, servername: "app.example" };
    request({ ...options, headers: { host: "app.example" } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .on("error", reject)
      .end();
  });
}

describe.each(PROXIES)("the file for %s", (name, args, events, ...packages) => {
  let program: string;
  let libraries = "";
  let proxy: ChildProcess;
  let exited: Promise<unknown>;

  async function start(): Promise<void> {
    const homes = { HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
    const env = { ...process.env, ...homes, LD_LIBRARY_PATH: libraries };
    proxy = spawn(program, args, { cwd: folder, env, stdio: ["ignore", "ignore", "pipe"] });
    let errors = "";
    proxy.stderr!.on("data", (text: Buffer) => (errors += text.toString()));
    exited = once(proxy, "exit");
    const serves = expect.poll(() => statusOf("/health").catch(String)).toBe(200);
    await Promise.race([serves, exited.then(() => Promise.reject(new Error(`${name} ended:\n${errors}`)))]);
  }
  async function stop(): Promise<void> {
    proxy.kill("SIGTERM");
    await exited;
  }

  beforeAll(async () => {
    const [found] = onPath(name);
    if (found !== undefined) program = found;
    else ({ program, libraries } = await aptUnpack(name, ...packages));
  });
  beforeEach(start);
  afterEach(stop);

  it("passes on the WebSocket, the host, the origin and the address of the client, and no forged address", async () => {
    await using peer = await connectThrough();
    expect(await peer.request("myAddress")).toBe("127.0.0.1");
    expect(await rejection(connectThrough("https://evil.example"))).toMatchObject({ status: 403 });
    const [, NODE_EXTRA_CA_CERTS, command] = /NODE_EXTRA_CA_CERTS=(\S+) npx reciproc (.*)$/m.exec(PAGE)!;
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(HOSTS)}`;
    const env = { ...process.env, NODE_EXTRA_CA_CERTS, NODE_OPTIONS };
    const call = () => run(process.execPath, [MAIN, ...command!.split(" ")], { cwd: folder, env });
    await expect.poll(async () => (await call()).stdout).toBe('"127.0.0.1"\n');
  });

  it("answers a call that was made while the proxy restarted", async () => {
    await using peer = await connectThrough();
    const emitted: string[] = [];
    for (const event of ["suspend", "lost"] as const) peer.on(event, () => void emitted.push(event));
    await stop();
    const call = peer.request("myAddress", undefined, { retry: "not-sent" });
    await start();
    peer.reconnect();
    expect(await call).toBe("127.0.0.1");
    expect(emitted).toEqual(events);
  });
});

it("the commands of the page show what it says of them", async () => {
  const commands = [...PAGE.matchAll(/^npx reciproc (call localhost:8000.*)$/gm)].map(([, args]) => args!);
  const [refused, answered, ...others] = commands.map(async (args) => {
    const split = [...args.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain!);
    return runCommand(split);
  });
  expect(others).toEqual([]);
  expect(await refused).toMatchObject({ stderr: expect.stringContaining("HTTP 403") });
  // The server is another process.
  await expect.poll(() => server.errors).toContain('Host "other.example" is not allowed');
  expect(await answered).toMatchObject({ code: 0, stdout: '"203.0.113.7"\n' });
});

it("the server for production drains at SIGTERM", async () => {
  const url = "ws://127.0.0.1:8000/rpc";
  const peer = await connect(url, { reconnect: false, headers: { host: "localhost" } });
  const stopped = server.stop();
  expect((await peer.closed).code).toBe(1001);
  await stopped;
});

it("the manifest of Kubernetes is valid by the types of its API, and fits the server for production", async () => {
  const documents = parseAllDocuments(await readFile(join(folder, "kubernetes.yaml"), "utf8"));
  expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
  const objects = documents.map((document) => document.toJS() as Record<string, any>);
  const kinds = objects.map(({ apiVersion, kind }) => `${apiVersion}/${kind}`);
  expect(kinds).toEqual(["apps/v1/Deployment", "v1/Service", "networking.k8s.io/v1/Ingress"]);
  const lines = objects.map((object, i) => {
    const type = `import("kubernetes-models/${object["apiVersion"]}").I${object["kind"]}`;
    return `export const object${i}: ${type} = ${JSON.stringify(object)};`;
  });
  await writeFile(join(folder, "kubernetes.ts"), lines.join("\n"));
  expect(await compile("kubernetes.ts", "--skipLibCheck")).toBe("");

  const [deployment, service, ingress] = objects.map(({ spec }) => spec);
  const [name, labels] = [objects[1]!["metadata"].name, deployment.template.metadata.labels];
  const text = await readFile(join(folder, "production.js"), "utf8");
  const pod = deployment.template.spec;
  const [{ ports, readinessProbe, env }] = pod.containers;
  const [{ containerPort }] = ports;
  expect(text).toContain(`PORT ?? ${containerPort})`);
  expect(text).toContain(`"${readinessProbe.httpGet.path}"`);
  expect(readinessProbe.httpGet.port).toBe(containerPort);
  expect(env).toEqual([{ name: "HOST", value: "0.0.0.0" }]);
  const drainMs = Number(/timeoutMs: ([\d_]+)/.exec(text)![1]!.replace("_", ""));
  expect(pod.terminationGracePeriodSeconds * 1000).toBeGreaterThan(drainMs + 5_000);
  expect([deployment.selector.matchLabels, service.selector]).toEqual([labels, labels]);
  expect(service.ports[0].targetPort).toBe(containerPort);
  const [{ host, http }] = ingress.rules;
  expect(text).toContain(`hosts: ["${host}"]`);
  expect(http.paths[0].backend.service).toEqual({ name, port: { number: service.ports[0].port } });
});
