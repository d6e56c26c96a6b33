/** Runs the unchanged examples of the documents that need a page, in Chromium. */
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { createServer as createVite, type ViteDevServer } from "vite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { servingOnPort } from "../server/by-hand.js";
import { connect } from "../support/connect.js";
import { openPage } from "./browser.js";
import { clean, compile, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { bundle, startPage } from "./bundle.js";
import { gate } from "../support/turns.js";
import { run as runCli } from "../cli/program.js";

const ROOT = join(import.meta.dirname, "../..");
const CLI = join(ROOT, "dist/cli/main.js");
const INTEROP = join(ROOT, "test/interop");

const DOCUMENTS = [
  "README.md",
  "docs/guides/getting-started.md",
  "docs/guides/frameworks.md",
  "docs/guides/files.md",
  "docs/guides/language-servers.md",
];

beforeAll(async () => {
  await linkPackages(import.meta.dirname);
  for (const document of DOCUMENTS) await extract(document);
});
afterAll(clean);

/** Runs a test with a page of an example, which is bundled from its file. */
async function withPage(file: string, run: (page: Page) => Promise<void>, html = ""): Promise<void> {
  const site = await startPage(await bundle({ entryPoints: [join(folder, file)] }), html);
  const page = await openPage(site.url);
  try {
    await run(page);
  } finally {
    await page.context().close();
    site.close();
  }
}

async function startServer(file: string): Promise<Running> {
  const server = new Running(file);
  await server.line(/listening/);
  return server;
}

it("the page of README.md and its server call each other", async () => {
  const server = await startServer("server.js");
  await withPage("browser.js", async (page) => {
    await page.waitForFunction("document.title === 'the room is \"Kitchen\"'");
  });
  await server.stop();
});

const lines = (page: Page): Promise<string[]> => page.getByRole("listitem").allTextContents();
async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox").fill(text);
  await page.getByRole("textbox").press("Enter");
}

async function startVite(configFile?: string): Promise<ViteDevServer> {
  const vite = await createVite({
    root: folder,
    configFile: configFile === undefined ? false : join(folder, configFile),
    cacheDir: join(folder, ".vite"),
    logLevel: "error",
    resolve: { alias: { reciproc: join(ROOT, "dist/index.js") } },
    server: { port: 0, host: "localhost" },
  });
  return vite.listen();
}

it("the chat of Getting started shows a line of one page in both, also after a restart, and none of a shell", async () => {
  expect(await compile("server.ts")).toBe("");
  let server = await startServer("server.js");
  const vite = await startVite();
  const url = vite.resolvedUrls!.local[0]!;
  // The names are in the order in which the pages joined, so the second page opens when the first one has joined.
  const ada = await openPage(url, "Ada");
  await ada.getByText("here: Ada", { exact: true }).waitFor();
  const bob = await openPage(url, "Bob");
  await bob.getByText("here: Ada, Bob", { exact: true }).waitFor();
  await say(ada, "hello");
  for (const page of [ada, bob]) await expect.poll(() => lines(page)).toEqual(["Ada: hello"]);

  const args = ["call", "localhost:3000", "say", '{"text": "hi"}'];
  expect(await runCli(args)).toMatchObject({ code: 1, stderr: "error 1: join first\n" });

  await server.stop();
  for (const page of [ada, bob]) await page.getByText("offline").waitFor();
  await say(bob, "written while the server was away");
  server = await startServer("server.js");
  for (const page of [ada, bob]) await page.getByText("online").waitFor();
  // The other page may be connected after the line was sent.
  await expect.poll(() => lines(bob)).toContain("Bob: written while the server was away");
  for (const page of [ada, bob]) await page.context().close();
  await vite.close();
  await server.stop();
});

it("the page of Frameworks has one connection after its module was replaced", async () => {
  const [, html] = /`(<body>.*?)`/.exec(await readFile(join(ROOT, "docs/guides/frameworks.md"), "utf8"))!;
  await writeFile(join(folder, "index.html"), html!);
  const vite = await startVite("vite.config.js");
  const url = vite.resolvedUrls!.local[0]!;
  const page = await openPage(url);
  await page.getByText("2 + 3 is 5").waitFor();
  const document = await page.evaluateHandle("document");
  const code = await readFile(join(folder, "page.js"), "utf8");
  await writeFile(join(folder, "page.js"), code.replace("2 + 3", "two plus three"));
  await page.getByText("two plus three is 5").waitFor();
  // The page was not loaded again, which closes every connection.
  expect(await page.evaluate((old) => old === globalThis.document, document)).toBe(true);
  await using peer = await connect(`${url.replace("http", "ws")}rpc`);
  await expect.poll(() => peer.request("peers")).toBe(2);
  await page.context().close();
  await vite.close();
});

/** A component in Svelte, and a page of one in each framework: over stores of its own peer, with a button that makes a change. */
const SVELTE = `<script>
  import { storeOf } from "./svelte-topic.js";
  let { stores, textOf, add } = $props();
  const [list, people, adding] = stores.map(storeOf);
</script>
<button onclick={add}>{textOf($list, $people, $adding)}</button>`;
const pageOf = (url: string): string => `
import { connect, follow, mutation, presence } from "reciproc";
import { createEffect } from "solid-js";
import { render } from "solid-js/web";
import { mount, unmount } from "svelte";
import { createApp, h } from "vue";
import { signalOf } from "./solid-topic.js";
import Component from "./svelte-component.js";
import { useTopic } from "./vue-topic.js";
const textOf = (list, { others }, { pending }) =>
  [list.value, others.map(({ as }) => as), pending.map(({ text }) => text)].join("; ");
const frameworks = {
  vue(target, stores, add) {
    const app = createApp({ setup() {
      const refs = stores.map(useTopic);
      return () => h("button", { onClick: add }, textOf(...refs.map(({ value }) => value)));
    } });
    app.mount(target);
    return () => app.unmount();
  },
  svelte(target, stores, add) {
    const component = mount(Component, { target, props: { stores, textOf, add } });
    return () => unmount(component);
  },
  solid: (target, stores, add) =>
    render(() => {
      const signals = stores.map(signalOf);
      const button = document.createElement("button");
      button.onclick = add;
      createEffect(() => (button.textContent = textOf(...signals.map((signal) => signal()))));
      return button;
    }, target),
};
Object.assign(globalThis, { ends: [], subscribed: 0 });
const counted = ({ get, subscribe }) => ({ get, subscribe: (listener) => {
  const end = subscribe(listener);
  subscribed++;
  return () => (subscribed--, end());
} });
for (const [name, show] of Object.entries(frameworks)) {
  const peer = await connect("${url}");
  const list = follow(peer, "open", {}, { reduce: { added: (texts, { text }) => [...texts, text] } });
  const people = presence(peer, "people", {}, { state: name });
  const adding = mutation(peer, "add");
  const target = document.body.appendChild(document.createElement("div"));
  ends.push(show(target, [list, people, adding].map(counted), () => adding.mutate({ text: name })));
}`;

it("components of Vue, Svelte and Solid show a followed topic, the others and pending changes, until they are unmounted", async () => {
  await ensurePackages(INTEROP);
  const { compile: compileSvelte } = createRequire(join(INTEROP, "package.json"))("svelte/compiler");
  await writeFile(join(folder, "svelte-component.js"), compileSvelte(SVELTE, { generate: "client" }).js.code);
  const texts = ["tea"];
  let answered = gate();
  const { url } = await servingOnPort({
    topics: (name) => (name === "people" ? { members: "people" } : { log: {} }),
    methods: {
      open: ({ since }: any, { peer, server }: any) => server.topic("list").join(peer, { since, load: () => texts }),
      people: (params: any, { peer, server }: any) => server.topic("people").present(peer, params, params.state),
      async add({ text }: any, { server }: any) {
        await answered.promise;
        await server.topic("list").publish("added", { text });
      },
    },
  });
  await writeFile(join(folder, "components.js"), pageOf(url));
  await withPage("components.js", async (page) => {
    const names = ["vue", "svelte", "solid"];
    const buttons = page.getByRole("button");
    const showAll = async (pending = ""): Promise<void> => {
      const othersOf = (name: string): string[] => names.filter((other) => other !== name);
      const shown = names.map((name) => [texts, othersOf(name), name === pending ? name : ""].join("; "));
      await expect.poll(() => buttons.allTextContents()).toEqual(shown);
    };
    await showAll();
    for (const [i, name] of names.entries()) {
      answered = gate();
      await buttons.nth(i).click();
      await showAll(name);
      texts.push(name);
      answered.resolve();
      await showAll();
    }
    expect(await page.evaluate("[subscribed, (ends.forEach((end) => end()), subscribed)]")).toEqual([9, 0]);
  });
});

it("the page of Files and bytes stores a file of the greatest length, and loads it again", async () => {
  const server = await startServer("bytes-server.js");
  const upload = { name: "cat.png", mimeType: "image/png", buffer: Buffer.alloc(1_000_000, 7) };
  const test = async (page: Page): Promise<void> => {
    // Again until the page listens to the input, which it does when it is connected.
    const load = async (): Promise<string | null> => {
      await page.setInputFiles("input", []);
      await page.setInputFiles("input", upload);
      return page.locator("p").textContent();
    };
    await expect.poll(load).toBe("cat.png: 1000000 and 1000000 bytes");
  };
  await withPage("bytes-page.js", test, '<input type="file" /><p></p>');
  await server.stop();
});

/** Starts the bridge with the arguments that the document names. */
async function startBridge(): Promise<Running> {
  const text = await readFile(join(ROOT, "docs/guides/language-servers.md"), "utf8");
  const [, args] = /^npx reciproc (bridge .* --) npx vscode-css-language-server --stdio$/m.exec(text)!;
  const command = join(import.meta.dirname, "node_modules/vscode-langservers-extracted/bin/vscode-css-language-server");
  const bridge = new Running(CLI, [...args!.split(" "), process.execPath, command, "--stdio"]);
  await bridge.line(/./);
  return bridge;
}

it.each([
  ["css-codemirror.js", ".cm-lintRange-warning", ".cm-tooltip-autocomplete"],
  ["css-monaco.js", ".squiggly-warning", ".suggest-widget"],
])("the page of Language servers, %s, shows diagnostics and completions, also after a restart", async (...row) => {
  const [file, warning, list] = row;
  let bridge = await startBridge();
  await withPage(file, async (page) => {
    await page.locator(warning).first().waitFor();
    const restarts = file === "css-codemirror.js";
    if (restarts) {
      await bridge.stop("SIGINT");
      await page.locator(".cm-content").click();
    }
    for (const key of ["Control+Home", "End", "Enter"]) await page.keyboard.press(key);
    if (restarts) bridge = await startBridge();
    await page.keyboard.type("background-c");
    if (file === "css-monaco.js") await page.keyboard.press("Control+Space");
    await page.locator(list, { hasText: "background-color" }).waitFor();
  });
  await bridge.stop("SIGINT");
});
