/** Runs the unchanged files of docs/guides/deployment.md: the server behind nginx, Caddy and HAProxy, and the manifest of Kubernetes. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { connect, type NodeConnectOptions, type Peer } from "../../src/node.js";
import { clean, compile, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { aptUnpack, onPath } from "../support/debian.js";
import { rejection } from "../support/turns.js";

const ORIGIN = "https://app.example";
const ROOT = join(import.meta.dirname, "../..");
const PAGE = await readFile(join(ROOT, "docs/guides/deployment.md"), "utf8");
const MAIN = join(ROOT, "dist/cli/main.js");
const run = promisify(execFile);

/** Lets the name lead to this machine, as the line of the page in /etc/hosts does. */
const HOSTS = `
import dns from "node:dns";
const { lookup } = dns;
dns.lookup = (name, ...rest) => lookup(name === "app.example" ? "127.0.0.1" : name, ...rest);`;

/** The proxies, how each is started with the file of the page, what a client sees of a restart, and their Debian packages. */
const PROXIES: [name: string, args: string[], events: string[], ...packages: string[]][] = [
  [
    "nginx",
    ["-p", `${folder}/`, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"],
    ["suspend"],
    "nginx",
  ],
  ["caddy", ["run", "--config", "Caddyfile.app", "--adapter", "caddyfile"], ["suspend", "lost"], "caddy"],
  [
    "haproxy",
    ["-f", "haproxy.cfg", "-db"],
    ["suspend"],
    "haproxy",
    "liblua5.3-0",
    "libopentracing-c-wrapper0",
    "libopentracing1",
  ],
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

/** Connects through the proxy as a page of the host would. */
function connectThrough(options: NodeConnectOptions = {}): Promise<Peer> {
  const headers = { host: "app.example", origin: ORIGIN, "x-forwarded-for": "6.6.6.6" };
  return connect("wss://127.0.0.1:8443/rpc", {
    headers,
    tls: { ca: cert, servername: "app.example" },
    ...options,
  });
}

/** Resolves with the status of a GET through the proxy. */
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
  let proxy: ChildProcess | undefined;

  async function start(): Promise<void> {
    const env = {
      ...process.env,
      LD_LIBRARY_PATH: libraries,
      HOME: folder,
      XDG_DATA_HOME: folder,
      XDG_CONFIG_HOME: folder,
    };
    proxy = spawn(program, args, { cwd: folder, env, stdio: ["ignore", "ignore", "pipe"] });
    let errors = "";
    proxy.stderr!.on("data", (text: Buffer) => (errors += text.toString()));
    const health = (): Promise<unknown> => statusOf("/health").catch((error: Error) => `${error.message}\n${errors}`);
    await expect.poll(health, { timeout: 240_000 }).toBe(200);
  }
  async function stop(): Promise<void> {
    if (proxy === undefined || proxy.exitCode !== null) return;
    proxy.kill("SIGTERM");
    await once(proxy, "exit");
  }

  beforeAll(async () => {
    const [found] = onPath(name);
    if (found !== undefined) program = found;
    else ({ program, libraries } = await aptUnpack(name, ...packages));
  });
  afterEach(stop);

  it("passes on the WebSocket, the host, the origin and the address of the client, and no forged address", async () => {
    await start();
    await using peer = await connectThrough();
    expect(await peer.request("myAddress")).toBe("127.0.0.1");
    const headers = { host: "app.example", origin: "https://evil.example" };
    expect(await rejection(connectThrough({ headers }))).toMatchObject({ status: 403 });
  });

  it("passes on the call of the page's command", async () => {
    await start();
    const [, certificates, command] = /NODE_EXTRA_CA_CERTS=(\S+) npx reciproc (.*)$/m.exec(PAGE)!;
    const env = {
      ...process.env,
      NODE_EXTRA_CA_CERTS: certificates,
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(HOSTS)}`,
    };
    const { stdout } = await run(process.execPath, [MAIN, ...command!.split(" ")], { cwd: folder, env });
    expect(stdout).toBe('"127.0.0.1"\n');
  });

  it("answers a call that was made while the proxy restarted", async () => {
    await start();
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

/** Runs the command `reciproc`. Returns what it prints. */
async function runCommand(args: string): Promise<string> {
  const split = [...args.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain!);
  const calling = run(process.execPath, [MAIN, ...split]);
  const { stdout, stderr } = await calling.catch((error: unknown) => error as { stdout: string; stderr: string });
  return stdout + stderr;
}

it("the commands of the page show what it says of them", async () => {
  const commands = [...PAGE.matchAll(/^npx reciproc (call localhost:8000.*)$/gm)].map(([, args]) => args!);
  expect(commands).toHaveLength(2);
  expect(await runCommand(commands[0]!)).toContain("HTTP 403");
  expect(server.errors).toContain('Host "other.example" is not allowed');
  expect(await runCommand(commands[1]!)).toBe('"203.0.113.7"\n');
});

it("the server for production drains at SIGTERM, and is unhealthy meanwhile", async () => {
  const url = "ws://127.0.0.1:8000/rpc";
  const peer = await connect(url, { reconnect: false, headers: { host: "localhost" } });
  expect((await fetch("http://127.0.0.1:8000/health")).status).toBe(200);
  expect((await fetch("http://127.0.0.1:8000/other")).status).toBe(404);
  const stopped = server.stop();
  expect((await peer.closed).code).toBe(1001);
  await stopped;
});

/** Returns the objects of the page's manifest. */
async function readManifest(): Promise<Record<string, any>[]> {
  return parseAllDocuments(await readFile(join(folder, "kubernetes.yaml"), "utf8")).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Record<string, any>;
  });
}

it("the manifest of Kubernetes has only members that its API knows, and all that it requires", async () => {
  const objects = await readManifest();
  expect(objects.map(({ apiVersion, kind }) => `${apiVersion}/${kind}`)).toEqual([
    "apps/v1/Deployment",
    "v1/Service",
    "networking.k8s.io/v1/Ingress",
  ]);
  const lines = objects.map(({ apiVersion, kind }, i) => {
    const type = `import("kubernetes-models/${apiVersion}").I${kind}`;
    return `export const object${i}: ${type} = ${JSON.stringify(objects[i])};`;
  });
  await writeFile(join(folder, "kubernetes.ts"), lines.join("\n"));
  expect(await compile("kubernetes.ts", "--skipLibCheck")).toBe("");
});

it("the manifest of Kubernetes fits the server for production", async () => {
  const [deployment, service, ingress] = await readManifest();
  const text = await readFile(join(folder, "production.js"), "utf8");
  const pod = deployment!["spec"].template.spec;
  const [container] = pod.containers;
  expect(text).toContain(`PORT ?? ${container.ports[0].containerPort})`);
  expect(text).toContain(`"${container.readinessProbe.httpGet.path}"`);
  expect(container.readinessProbe.httpGet.port).toBe(container.ports[0].containerPort);
  expect(container.env).toEqual([{ name: "HOST", value: "0.0.0.0" }]);
  const drainMs = Number(/timeoutMs: ([\d_]+)/.exec(text)![1]!.replace("_", ""));
  expect(pod.terminationGracePeriodSeconds * 1000).toBeGreaterThan(drainMs + 5_000);
  expect(deployment!["spec"].selector.matchLabels).toEqual(deployment!["spec"].template.metadata.labels);
  expect(service!["spec"].selector).toEqual(deployment!["spec"].template.metadata.labels);
  expect(service!["spec"].ports[0].targetPort).toBe(container.ports[0].containerPort);
  const [rule] = ingress!["spec"].rules;
  expect(text).toContain(`hosts: ["${rule.host}"]`);
  const backend = rule.http.paths[0].backend.service;
  expect([backend.name, backend.port.number]).toEqual([service!["metadata"].name, service!["spec"].ports[0].port]);
});
