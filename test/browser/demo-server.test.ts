/** The demo's server and clients other than its page, without a browser. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect as connectTcp, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect, type AnyPeer } from "../../src/node.js";
import { Relay } from "../support/relay.js";
import { enter, startDemo, type Demo } from "./demo.js";

const MIB = 2 ** 20;

it("the demo ends with 0 at SIGINT", async () => {
  const demo = await startDemo();
  expect(await demo.kill("SIGINT")).toBe(0);
});

describe("the demo's file server", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo[Symbol.asyncDispose]());

  it("keeps no file in memory for each pipelined request while the client reads nothing", async () => {
    const path = "/modules/@codemirror/view";
    const body = await bodyOf(demo, path);
    expect(body.length).toBeGreaterThan(400_000);
    const before = residentBytes(demo);
    const client = await sendRequests(demo, path, 600);
    // These requests arrive later, so their answers prove that all requests above were dispatched.
    for (let i = 0; i < 3; i++) await bodyOf(demo, path);
    expect(residentBytes(demo) - before).toBeLessThan(64 * MIB);
    client.destroy();
  });

  it("answers pipelined requests one after another, and refuses those after the 100th", async () => {
    const path = "/page/wire.js";
    const body = await bodyOf(demo, path);
    const client = await sendRequests(demo, path, 101, "Connection: close\r\n");
    const chunks: Buffer[] = [];
    for await (const chunk of client) chunks.push(chunk as Buffer);
    const responses = Buffer.concat(chunks)
      .toString()
      .split(/(?=HTTP\/1\.1 )/);
    expect(responses.pop()).toMatch(/^HTTP\/1\.1 503 /);
    expect(responses).toHaveLength(100);
    for (const response of responses) {
      expect(response).toMatch(/^HTTP\/1\.1 200 /);
      expect(response.endsWith(`\r\n\r\n${body.toString()}`)).toBe(true);
    }
  });

  it("serves every file that the page imports, with its type, for revalidation at each visit", async () => {
    const page = (await bodyOf(demo, "/")).toString();
    const map = JSON.parse(/<script type="importmap">(.*?)<\/script>/s.exec(page)![1]!) as {
      imports: Record<string, string>;
    };
    const scripts = Object.values(map.imports).filter((path) => !path.endsWith("/"));
    const types = new Map([
      ["/", "text/html; charset=utf-8"],
      ["/theme.css", "text/css; charset=utf-8"],
      ["/page/main.js", "text/javascript; charset=utf-8"],
      ["/modules/@codemirror/state", "text/javascript; charset=utf-8"],
      ...scripts.map((path) => [path, "text/javascript; charset=utf-8"] as const),
    ]);
    for (const [path, type] of types) {
      const { status, headers } = await fetch(`${demo.url}${path}?x`);
      expect([path, status, headers.get("content-type")]).toEqual([path, 200, type]);
      expect(headers.get("cache-control")).toBe("no-cache");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.has("etag")).toBe(true);
    }
  });

  it("serves its own folders only", async () => {
    const outside = ["/server.js", "/page/..%2fserver.js", "/reciproc/%2e%2e/demo/.build/server.js", "/page/.x.js"];
    for (const path of outside) expect([path, (await fetch(`${demo.url}${path}`)).status]).toEqual([path, 404]);
    expect((await fetch(`${demo.url}/reciproc/index.js`)).status).toBe(200);
  });
});

describe("the demo's language servers", () => {
  let demo: Demo;
  let folder: string;
  beforeAll(async () => {
    demo = await startDemo();
    folder = await mkdtemp(join(tmpdir(), "reciproc-demo-"));
    await writeFile(join(folder, "schema.json"), JSON.stringify({ properties: { "secret-member": {} } }));
    const properties = [{ name: "secret-property" }];
    await writeFile(join(folder, "custom.json"), JSON.stringify({ version: 1.1, properties }));
    await writeFile(join(folder, "secret-name.css"), "");
  });
  afterAll(async () => {
    await demo[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  /** The URL of a local file outside the demo. */
  const urlOf = (name: string): string => pathToFileURL(join(folder, name)).href;

  it("read no file that a client names, in any request", async () => {
    await using json = await attach(demo, "json");
    const uri = urlOf("x.json");
    json.configure({ json: { schemas: [{ fileMatch: ["*"], url: urlOf("schema.json") }] } });
    json.peer.notify("json/schemaAssociations", [[{ fileMatch: ["*"], uri: urlOf("schema.json") }]]);
    json.open(uri, `{"$schema": "${urlOf("schema.json")}", ""}`);
    expect(await json.complete(uri, 0, `{"$schema": "${urlOf("schema.json")}", "`.length)).not.toContain("secret");

    await using css = await attach(demo, "css");
    css.peer.notify("css/customDataChanged", [[urlOf("custom.json")]]);
    css.open(urlOf("x.css"), '@import "./";\na { sec }');
    expect(await css.complete(urlOf("x.css"), 0, '@import "./'.length)).not.toContain("secret");
    expect(await css.complete(urlOf("x.css"), 1, "a { sec".length)).not.toContain("secret");

    // The servers request the contents from the client instead.
    expect(json.asked).toContain("vscode/content");
    expect(css.asked).toEqual(expect.arrayContaining(["fs/content", "fs/readDir"]));
  });

  it("fetch no address that a client names", async () => {
    const visits: (string | undefined)[] = [];
    const listener = createServer((request, response) => {
      visits.push(request.url);
      response.end("{}");
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    const address = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
    await using json = await attach(demo, "json");
    json.configure({
      http: { proxy: address },
      json: { validate: { enable: true }, schemas: [{ fileMatch: ["*"], url: `${address}/configured` }] },
    });
    json.peer.notify("json/schemaAssociations", [[{ fileMatch: ["*"], uri: `${address}/associated` }]]);
    json.open("file:///x.json", `{"$schema": "${address}/named", "": 1}`);
    await json.complete("file:///x.json", 0, `{"$schema": "${address}/named", "`.length);
    expect(visits).toEqual([]);
    expect(json.asked).toContain("vscode/content");
    listener.close();
  });
});

describe("the demo's vote on clearing the board", () => {
  it("is granted when the pages that did not agree are disconnected", async () => {
    // The vote ends before its time is up.
    await using demo = await startDemo({ VOTE_TIMEOUT_MS: "60000" });
    await using relay = await Relay.to(demo.url);
    await using asker = await enter(demo.url, "Ada");
    const asked = [
      await enter(demo.url, "Bo", { vote: () => true }),
      await enter(demo.url, "Cy", { vote: never, ping: never }),
      await enter(relay.url.slice(0, -1), "Di", { vote: () => (void relay.close(), never()) }),
    ];
    const verdict = await asker.request("clear");
    expect(verdict).toEqual({
      by: "Ada",
      outcome: "cleared",
      answers: [
        { name: "Bo", answer: "agreed" },
        { name: "Cy", answer: "out of reach" },
        { name: "Di", answer: "out of reach" },
      ],
    });
    await Promise.all(asked.map((peer) => peer.close()));
  });

  it("is granted when the sessions of all pages that were asked expire", async () => {
    await using demo = await startDemo({ SESSION_TTL_MS: "300" });
    await using relay = await Relay.to(demo.url);
    await using asker = await enter(demo.url, "Ada");
    const asked = [
      await enter(relay.url.slice(0, -1), "Bo", { vote: never }),
      await enter(relay.url.slice(0, -1), "Cy", { vote: () => (void relay.close(), never()) }),
    ];
    expect(await asker.request("clear")).toMatchObject({ outcome: "cleared" });
    await Promise.all(asked.map((peer) => peer.close()));
  });

  it("waits for a page whose network returns in time", async () => {
    await using demo = await startDemo();
    await using asker = await enter(demo.url, "Ada");
    await using bo = await enter(demo.url, "Bo", { vote: () => bo.request("cut").then(() => false) }, "bo");
    expect(await asker.request("clear")).toMatchObject({ outcome: "kept", answers: [{ answer: "refused" }] });
  });
});

function never(): Promise<never> {
  return new Promise(() => {});
}

async function bodyOf({ url }: Demo, path: string): Promise<Buffer> {
  const response = await fetch(`${url}${path}`);
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

/** A connection that has sent `count` pipelined requests, the last one with `header`, and reads nothing yet. */
async function sendRequests({ url }: Demo, path: string, count: number, header = ""): Promise<Socket> {
  const socket = connectTcp(Number(new URL(url).port), "127.0.0.1").pause();
  await once(socket, "connect");
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n`;
  const requests = `${request}\r\n`.repeat(count - 1) + `${request}${header}\r\n`;
  await new Promise((resolve) => socket.write(requests, resolve));
  return socket;
}

/** Returns the resident memory of the demo's process. */
function residentBytes({ pid }: Demo): number {
  return 1024 * Number(execFileSync("ps", ["-o", "rss=", "-p", String(pid)]));
}

/** A client of a language server that asks it to read files and addresses itself. */
interface Attacker extends AsyncDisposable {
  peer: AnyPeer;
  /** The methods that the server called on this client. */
  asked: string[];
  configure(settings: object): void;
  open(uri: string, text: string): void;
  /** The completions at that place, as one text. */
  complete(uri: string, line: number, character: number): Promise<string>;
}

async function attach({ url }: Demo, languageId: "css" | "json"): Promise<Attacker> {
  const asked: string[] = [];
  const deny = (method: string) => (): never => {
    asked.push(method);
    throw new Error("denied");
  };
  const methods = ["vscode/content", "fs/content", "fs/stat", "fs/readDir"].map((name) => [name, deny(name)]);
  const peer = await connect(`${url.replace("http", "ws")}/lsp/${languageId}`, {
    link: "plain",
    limits: { maxMessageBytes: 8 * MIB },
    methods: { ...Object.fromEntries(methods), "textDocument/publishDiagnostics": () => {} },
  });
  const schemes = ["file", "http", "https"];
  // Twice, because the server would accept the second one too.
  for (let i = 0; i < 2; i++) {
    await peer.request("initialize", {
      processId: null,
      rootUri: null,
      capabilities: { textDocument: { completion: { completionItem: { snippetSupport: true } } } },
      initializationOptions: { handledSchemas: schemes, handledSchemaProtocols: schemes },
    });
  }
  peer.notify("initialized", {});
  return {
    peer,
    asked,
    configure: (settings) => void peer.notify("workspace/didChangeConfiguration", { settings }),
    open: (uri, text) =>
      void peer.notify("textDocument/didOpen", { textDocument: { uri, languageId, version: 1, text } }),
    complete: async (uri, line, character) =>
      JSON.stringify(
        await peer.request("textDocument/completion", { textDocument: { uri }, position: { line, character } }),
      ),
    [Symbol.asyncDispose]: () => peer.close(),
  };
}
