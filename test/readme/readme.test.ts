import { access, readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Peer } from "../../src/index.js";
import { connect } from "../../src/node.js";
import { launch } from "../browser/chromium.js";
import { startSite } from "../browser/site.js";
import { gate } from "../support/turns.js";
import { clean, compile, extract, folder, Running } from "./examples.js";

beforeAll(async () => {
  await extract("README.md");
  await extract("docs/ARCHITECTURE.md");
});
afterAll(clean);

/** A server's example says nothing when it listens, or something else: ask the port. */
async function listening(port: number): Promise<void> {
  for (let tries = 100; ; tries--) {
    try {
      return await (await connect(`ws://localhost:${port}`)).close();
    } catch (error) {
      if (tries === 0) throw error;
      await delay(50);
    }
  }
}

describe("the README", () => {
  it("has a first example that runs in Node as it stands", async () => {
    const server = new Running("server.js");
    expect(await server.line(/listening/)).toBe("listening on ws://127.0.0.1:4321/");
    const client = new Running("client.js");
    expect(await client.line(/room/)).toBe('the room is "Attic"');
    await client.exited;
    await server.stop();
  });

  it("has a first example that runs in a browser as it stands", async () => {
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

  it("has a chat that runs as it stands", async () => {
    const server = new Running("chat-server.js");
    await listening(4322);
    const ada = new Running("chat-client.js", ["den", "Ada"]);
    expect(await ada.line(/here/)).toBe("here: Ada");
    const bob = new Running("chat-client.js", ["den", "Bob"]);
    expect(await bob.line(/here/)).toBe("here: Ada, Bob");
    bob.say("hello");
    expect(await ada.line(/hello/)).toBe("Bob: hello");
    expect(await bob.line(/hello/)).toBe("Bob: hello");
    await Promise.all([ada.stop(), bob.stop()]);
    await server.stop();
  });

  it("has a connection that outlives its server and runs as it stands", async () => {
    const lasting = new Running("lasting.js");
    await lasting.exited;
    expect(lasting.lines).toEqual([
      "trying to come back",
      "what was in it is lost: the session ended with 1001 (the server is closing)",
      "here again",
      "news: version 2",
    ]);
  });

  it("has subscriptions that run as they stand", async () => {
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

  it("has a call by HTTP that runs as it stands", async () => {
    const both = new Running("one-shot.js");
    await both.exited;
    expect(both.lines).toEqual(["{ jsonrpc: '2.0', id: 1, result: 3 }"]);
  });

  it("has a typed example that compiles and runs as it stands", async () => {
    await compile("typed.ts");
    const both = new Running("typed.js");
    await both.exited;
    expect(both.lines).toEqual(["3", "{ members: [ 'ada' ] }", "ada 4 2"]);
  }, 60_000);
});

describe("the architecture document", () => {
  it("has a transport that carries two peers as it stands", async () => {
    const { overPort } = (await import(pathToFileURL(`${folder}/port.js`).href)) as {
      overPort: (port: MessagePort, options: object) => Peer;
    };
    const { port1, port2 } = new MessageChannel();
    const a = overPort(port1, { methods: { add: ([x, y]: [number, number]) => x + y } });
    const b = overPort(port2, {});
    expect(await b.request("add", [1, 2])).toBe(3);
    await b.close();
    expect((await a.closed).code).toBe(1000);
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
