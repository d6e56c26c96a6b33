import { access, readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import ts from "typescript-5.9";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Peer } from "../../src/index.js";
import { connect } from "../../src/node.js";
import { launch } from "../browser/chromium.js";
import { startSite } from "../browser/site.js";
import { gate } from "../support/turns.js";
import { clean, compile, examplesOf, extract, folder, Running } from "./examples.js";

const README = await examplesOf("README.md");
const API = await examplesOf("docs/API.md");
/** The examples whose output is not in the documents. Each has a test of its own below. */
const SILENT = ["server.js", "browser.js", "client.js", "blocks-server.js"];

beforeAll(async () => {
  await extract("README.md");
  await extract("docs/API.md");
  await extract("docs/ARCHITECTURE.md");
});
afterAll(clean);

describe("an example of README.md or API.md", () => {
  const printing = [...README, ...API].filter(({ output }) => output !== undefined);

  it.each(["README.md", "docs/API.md"])("begins with the name of a file, each in %s", async (document) => {
    const blocks = (await readFile(document, "utf8")).match(/^```(js|ts|javascript|typescript)$/gm);
    expect(await examplesOf(document)).toHaveLength(blocks!.length);
  });

  it("has a unique name, and has its output in the document or a test below", () => {
    const names = [...README, ...API].map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(printing.length).toBeGreaterThan(20);
    expect(names.filter((name) => !printing.some((one) => one.name === name))).toEqual(SILENT);
  });

  it.each(printing)(
    "prints the documented output: $name",
    async ({ name, output }) => {
      if (name.endsWith(".ts")) await compile(name);
      const running = new Running(name.replace(/\.ts$/, ".js"));
      expect(await running.exited).toEqual([0, null]);
      expect(running.lines).toEqual(output);
    },
    60_000,
  );
});

describe("the examples without an output", () => {
  it("run unchanged in Node: a server and a client", async () => {
    const server = new Running("server.js");
    expect(await server.line(/listening/)).toBe("listening on ws://127.0.0.1:4321/");
    const client = new Running("client.js");
    expect(await client.line(/room/)).toBe('the room is "Attic"');
    await client.exited;
    await server.stop();
  });

  it("run unchanged in a browser: a page and a server", async () => {
    const server = new Running("server.js");
    await server.line(/listening/);
    const [browser, site] = await Promise.all([launch(), startSite()]);
    try {
      const page = await browser.newPage();
      const asked: string[] = [];
      page.on("dialog", (dialog) => {
        asked.push(dialog.message());
        void dialog.accept();
      });
      await page.goto(`http://localhost:${site.port}/`);
      await page.addScriptTag({ type: "module", content: await readFile(`${folder}/browser.js`, "utf8") });
      await page.waitForFunction('document.title.startsWith("the room")');
      expect(asked).toEqual(['Call the room "Kitchen"?']);
      expect(await page.title()).toBe('the room is "Kitchen"');
    } finally {
      await browser.close();
      site.http.close();
      await server.stop();
    }
  });

  it("run unchanged: subscriptions", async () => {
    const server = new Running("blocks-server.js");
    const url = (await server.line(/listening/)).replace("listening on ", "");
    const pushes: unknown[] = [];
    const third = gate();
    await using peer = await connect(url, {
      link: "plain",
      methods: { eth_subscription: (push) => void (pushes.push(push) === 3 && third.resolve()) },
    });
    const id = await peer.request("eth_subscribe", ["newHeads"]);
    await third.promise;
    const [{ result }] = pushes as [{ result: { number: number } }];
    expect(pushes).toEqual([0, 1, 2].map((i) => ({ subscription: id, result: { number: result.number + i } })));
    expect(await peer.request("eth_unsubscribe", [id])).toBe(true);
    expect(await peer.request("eth_unsubscribe", [id])).toBe(false);
    await server.stop();
  });
});

describe("the architecture document", () => {
  it("has a transport that connects two peers unchanged", async () => {
    const { overPort } = (await import(pathToFileURL(`${folder}/port.js`).href)) as {
      overPort: (port: MessagePort, options: object) => Peer;
    };
    const { port1, port2 } = new MessageChannel();
    const a = overPort(port1, { methods: { add: ([x, y]: [number, number]) => x + y } });
    const b = overPort(port2, {});
    expect(await b.request("add", [1, 2])).toBe(3);
    await b.close();
    expect((await a.closed).code).toBe(1000);
    // A thread that ends closes its port without a message.
    const { port1: near, port2: far } = new MessageChannel();
    const left = overPort(near, {});
    far.close();
    expect((await left.closed).code).toBe(1006);
  });
});

describe("API.md", () => {
  it("names every export of the package", async () => {
    const { exports } = JSON.parse(await readFile("package.json", "utf8")) as {
      exports: Record<string, string | { types: string }>;
    };
    const entries = Object.values(exports).flatMap((entry) => (typeof entry === "string" ? [] : [entry.types]));
    const resolution = { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler };
    const program = ts.createProgram(entries, { noEmit: true, ...resolution });
    const checker = program.getTypeChecker();
    const names = entries.flatMap((entry) => {
      const module = checker.getSymbolAtLocation(program.getSourceFile(entry)!);
      return checker.getExportsOfModule(module!).map(({ name }) => name);
    });
    expect(new Set(names).size).toBeGreaterThan(60);
    const document = await readFile("docs/API.md", "utf8");
    expect(names.filter((name) => !document.includes(`\`${name}\``))).toEqual([]);
  });
});

describe("the page on reliability", () => {
  it("names tests that exist", async () => {
    const text = await readFile("docs/RELIABILITY.md", "utf8");
    const named = [...text.matchAll(/`(test\/[^`]+\.test\.ts)`/g)].map(([, file]) => file!);
    expect(named.length).toBeGreaterThan(20);
    for (const file of named) await expect(access(file).then(() => file)).resolves.toBe(file);
  });
});
