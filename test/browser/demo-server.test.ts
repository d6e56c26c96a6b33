/** The demo's server and clients other than its page. They need the built demo and the packages of its language servers, but no browser. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConnectionLostError, type AnyPeer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { listening } from "../support/network.js";
import { Relay } from "../support/relay.js";
import { enter, LONG_VOTE, startDemo, type Demo } from "./demo.js";

describe("the demo's file server", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo[Symbol.asyncDispose]());

  it("answers pipelined requests one after another, and refuses those after the 100th", async () => {
    const path = "/page/wire.js";
    const body = await bodyOf(demo, path);
    const client = connectTcp(Number(new URL(demo.url).port), "127.0.0.1");
    const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n`;
    client.write(`${`${request}\r\n`.repeat(100)}${request}Connection: close\r\n\r\n`);
    const responses = (await text(client)).split(/(?=HTTP\/1\.1 )/);
    expect(responses.pop()).toMatch(/^HTTP\/1\.1 503 /);
    expect(responses).toHaveLength(100);
    for (const response of responses) {
      expect(response).toMatch(/^HTTP\/1\.1 200 /);
      expect(response.endsWith(`\r\n\r\n${body}`)).toBe(true);
    }
  });

  it("serves every file that the page imports, with its type, for revalidation at each visit, and no other", async () => {
    const page = await bodyOf(demo, "/");
    const [, map] = /<script type="importmap">(.*?)<\/script>/s.exec(page)!;
    const { imports } = JSON.parse(map!) as { imports: Record<string, string> };
    const scripts = Object.values(imports).filter((path) => !path.endsWith("/"));
    const types = [
      ["/", "html"],
      ["/theme.css", "css"],
      ...[...scripts, "/page/main.js", "/reciproc/index.js"].map((path) => [path, "javascript"]),
    ];
    for (const [path, type] of types) {
      const { status, headers } = await fetch(`${demo.url}${path}?x`);
      expect([path, status, headers.get("content-type")]).toEqual([path, 200, `text/${type}; charset=utf-8`]);
      expect(headers.get("cache-control")).toBe("no-cache");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.has("etag")).toBe(true);
    }
    const outside = ["/server.js", "/page/..%2fserver.js", "/reciproc/%2e%2e/demo/.build/server.js", "/page/.x.js"];
    for (const path of ["package.json", "docs/..%2fpackage.json", "src/index.ts", "docs/soak.json", "docs/none.md"])
      outside.push(`/about/${path}`);
    for (const path of outside) expect([path, (await fetch(`${demo.url}${path}`)).status]).toEqual([path, 404]);
  });
});

it("the demo's language servers read no file and fetch no address that a client names, in any request", async () => {
  await using demo = await startDemo();
  const folder = await mkdtemp(join(tmpdir(), "reciproc-demo-"));
  await writeFile(join(folder, "schema.json"), JSON.stringify({ properties: { "secret-member": {} } }));
  const properties = [{ name: "secret-property" }];
  await writeFile(join(folder, "custom.json"), JSON.stringify({ version: 1.1, properties }));
  await writeFile(join(folder, "secret-name.css"), "");
  const visits: (string | undefined)[] = [];
  await using listener = await listening(
    createServer((request, response) => {
      visits.push(request.url);
      response.end("{}");
    }),
  );
  const address = listener.url.replace("ws:", "http:");
  const files = pathToFileURL(folder).href;

  await using json = await attach(demo, "json");
  for (const base of [files, address]) {
    const [uri, url] = [`${files}/${json.asked.length}.json`, `${base}/schema.json`];
    const validate = { enable: true };
    const settings = { http: { proxy: address }, json: { validate, schemas: [{ fileMatch: ["*"], url }] } };
    json.peer.notify("workspace/didChangeConfiguration", { settings });
    json.peer.notify("json/schemaAssociations", [[{ fileMatch: ["*"], uri: url }]]);
    json.open(uri, `{"$schema": "${url}", ""}`);
    expect(await json.complete(uri, 0, `{"$schema": "${url}", "`.length)).not.toContain("secret");
  }
  await using css = await attach(demo, "css");
  css.peer.notify("css/customDataChanged", [[`${files}/custom.json`]]);
  css.open(`${files}/x.css`, '@import "./";\na { sec }');
  expect(await css.complete(`${files}/x.css`, 0, '@import "./'.length)).not.toContain("secret");
  expect(await css.complete(`${files}/x.css`, 1, "a { sec".length)).not.toContain("secret");

  // The servers request the contents from the client instead.
  expect(json.asked).toContain("vscode/content");
  expect(css.asked).toEqual(expect.arrayContaining(["fs/content", "fs/readDir"]));
  expect(visits).toEqual([]);
  await rm(folder, { recursive: true });
});

describe("the demo's vote on clearing the board", () => {
  it("is granted when the sessions of all pages that were asked expire, or they answer no ping", async () => {
    await using demo = await startDemo({ SESSION_TTL_MS: "300", VOTE_TIMEOUT_MS: "600000" });
    await using relay = await Relay.to(demo.url);
    await using asker = await enter(demo.url, "Ada");
    const asked = [
      await enter(relay.url.slice(0, -1), "Bo", { vote: () => (void relay.close(), never()) }),
      await enter(demo.url, "Cy", { vote: never, ping: never }),
    ];
    const answers = ["Bo", "Cy"].map((name) => ({ name, answer: "out of reach" }));
    expect(await asker.request("clear")).toEqual({ by: "Ada", outcome: "cleared", answers });
    await Promise.all([asker, ...asked].map((peer) => peer.close()));
    expect(await demo.kill("SIGINT")).toBe(0);
  });

  it("does not wait longer than its time for a page that gives no answer", async () => {
    await using demo = await startDemo({ ...LONG_VOTE.env, VOTE_TIMEOUT_MS: "100" });
    const asked = await enter(demo.url, "Bo", { vote: never });
    await using asker = await enter(demo.url, "Ada");
    expect(await asker.request("clear")).toMatchObject({ outcome: "kept", answers: [{ answer: "did not answer" }] });
    await asked.close();
  });

  it("waits for a page whose network returns in time, and not for one that has left", async () => {
    await using cuttable = await startDemo({ ...LONG_VOTE.env, CUT_MS: "1000" });
    const refuse = (): Promise<boolean> => returning.request("cut").then(() => false);
    const returning: AnyPeer = await enter(cuttable.url, "Bo", { vote: refuse }, "bo");
    await using voter = await enter(cuttable.url, "Ada");
    // Again if a busy machine does not answer the pings after the cut.
    await expect
      .poll(() => voter.request("clear"))
      .toMatchObject({ outcome: "kept", answers: [{ answer: "refused" }] });
    await returning.close();

    await using demo = await startDemo(LONG_VOTE.env);
    let vote: () => unknown = never;
    const decided: unknown[] = [];
    const methods = { vote: () => vote(), decided: (verdict: unknown) => void decided.push(verdict) };
    await using bo = await enter(demo.url, "Bo", methods);
    await using asker = await enter(demo.url, "Ada");
    vote = () => (void asker.close(), never());
    await expect(asker.request("clear")).rejects.toBeInstanceOf(ConnectionLostError);
    await expect.poll(() => decided).toContainEqual(expect.objectContaining({ by: "Ada", outcome: "asker left" }));
    await using cy = await enter(demo.url, "Cy");
    vote = () => (void bo.close(), never());
    expect(await cy.request("clear")).toMatchObject({ outcome: "kept", answers: [{ answer: "left" }] });
  });
});

const never = (): Promise<never> => new Promise(() => {});

async function bodyOf({ url }: Demo, path: string): Promise<string> {
  const response = await fetch(`${url}${path}`);
  expect(response.status).toBe(200);
  return response.text();
}

/** Connects a client to a language server that asks it to read files and addresses itself. */
async function attach({ url }: Demo, languageId: "css" | "json") {
  const asked: string[] = [];
  const deny = (method: string) => (): never => {
    asked.push(method);
    throw new Error("denied");
  };
  const methods = ["vscode/content", "fs/content", "fs/stat", "fs/readDir"].map((name) => [name, deny(name)]);
  const peer: AnyPeer = await connect(`${url.replace("http", "ws")}/lsp/${languageId}`, {
    link: "plain",
    limits: { maxMessageBytes: 8 * 2 ** 20 },
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
    /** The methods that the server called on this client. */
    asked,
    open: (uri: string, content: string) =>
      void peer.notify("textDocument/didOpen", { textDocument: { uri, languageId, version: 1, text: content } }),
    /** Returns the completions at that place, as one text. */
    async complete(uri: string, line: number, character: number): Promise<string> {
      const place = { textDocument: { uri }, position: { line, character } };
      return JSON.stringify(await peer.request("textDocument/completion", place));
    },
    [Symbol.asyncDispose]: () => peer.close(),
  };
}
