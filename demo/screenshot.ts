/**
 * Takes the pictures of the demo: `node demo/.build/screenshot.js [FOLDER]` (default: those in docs; with a folder, every size and
 * theme, with one, two and ten people, connected and cut). Needs `npm run build`, `tsc -p demo` and a Chromium (CHROMIUM_PATH, or
 * /usr/bin/chromium).
 */
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Browser, Frame, Page } from "playwright-core";
import { connect, type Context, type Handlers, type Peer } from "reciproc/node";
import type { ClientApi, ServerApi } from "./api.js";
import { arc, curve, drawLine, heart, openStage, type Point } from "./stage.js";

interface View {
  file: string;
  width: number;
  height: number;
  colorScheme: "light" | "dark";
  editor?: "css" | "json";
  /** The number of people on the board, this page included. */
  people?: number;
  isCut?: boolean;
  isSplit?: boolean;
}

const folder = process.argv[2];
const docs = (name: string): string => fileURLToPath(new URL(`../../docs/${name}.webp`, import.meta.url));
const wide = { width: 1440, height: 900 };
const SIZES = [wide, { width: 1024, height: 768 }, { width: 844, height: 390 }, { width: 390, height: 844 }];
const SCHEMES = ["light", "dark"] as const;
const NAMES = [
  "Ada",
  "Bo",
  "Calm Falcon",
  "Maximiliane Mustermann",
  "Eager Heron",
  "Fancy Lynx",
  "Jolly Otter",
  "Puffin",
  "Yak",
];

/** The pictures of every size and theme in a folder. */
function* everyView(into: string): Generator<View> {
  for (const size of SIZES) {
    for (const colorScheme of SCHEMES) {
      const name = `${into}/${size.width}x${size.height}-${colorScheme}`;
      for (const people of [1, 2, 10])
        for (const isCut of [false, true])
          yield { file: `${name}-${people}${isCut ? "-cut" : ""}.png`, ...size, colorScheme, people, isCut };
      yield { file: `${name}-split.png`, ...size, colorScheme, isSplit: true };
      for (const editor of ["css", "json"] as const)
        yield { file: `${name}-${editor}.png`, ...size, colorScheme, editor };
    }
  }
}

// A page that was closed while its network was cut must not be in the next picture for long. A cut of 5 s must not end a session.
const { url, chrome } = await openStage({ SESSION_TTL_MS: "6000" });
const ada = await enter(chrome, "Ada", "violet", { file: "", ...wide, colorScheme: "light" });
const bo = await enter(chrome, "Bo", "orange", { file: "", width: 1200, height: 860, colorScheme: "light" });
await paint(ada, bo);
await talk(ada, bo);

if (folder === undefined) {
  await takeEditor({ file: docs("demo-editor"), ...wide, colorScheme: "light", editor: "css" });
} else {
  const views = [...everyView(folder)];
  for (const view of views) if (view.editor !== undefined) await takeEditor(view);
  for (const each of [ada, bo]) await each.context().close();
  for (const view of views) if (view.people !== undefined) await takePeople(view);
  for (const view of views) if (view.isSplit === true) await takeSplit(view);
}
await chrome.close();
process.exit();

/** Takes a picture of three people in the editor, and restores the text. */
async function takeEditor(view: View): Promise<void> {
  const page = await enter(chrome, "Mika", "pink", view);
  for (const each of [page, ada, bo]) await each.click("#editor-tab");
  await (view.editor === "css" ? styleTogether : configureTogether)(page, ada, bo);
  await save(page, view.file);
  for (const each of [page, bo]) for (let i = 0; i < 8; i++) await each.keyboard.press("Control+z");
  for (const each of [ada, bo]) await each.click("#board-tab");
  await page.context().close();
}

/** Takes a picture of a page with some other people, who are no browsers. If its network is cut, messages wait. */
async function takePeople(view: View): Promise<void> {
  const others = await Promise.all(NAMES.slice(0, (view.people ?? 1) - 1).map(join));
  const page = await enter(chrome, "Mika", "pink", view);
  await page.waitForFunction((count) => document.querySelectorAll(".person").length === count, view.people);
  await page.locator("#tabs button[value=people]").evaluate((button: HTMLElement) => button.click());
  for (const [i, other] of others.entries()) other.notify("move", { x: 0.1 + 0.09 * i, y: 0.25 + 0.2 * (i % 3) });
  if (view.isCut === true) {
    await page.locator("#tabs button[value=chat]").evaluate((button: HTMLElement) => button.click());
    await page.locator("#cut").evaluate((button: HTMLElement) => button.click());
    await page.getByText("Reconnecting", { exact: true }).waitFor();
    await line(page, heart(0.42, 0.21, 0.036));
    await page.fill("#text", "written while the network is cut");
    await page.press("#text", "Enter");
    await page.locator(".line.pending").waitFor();
  }
  await page.waitForTimeout(300);
  await save(page, view.file);
  await page.context().close();
  await Promise.all(others.map((other) => other.close()));
}

/** Takes a picture of the split view. The network of the first person is cut, and her messages wait. */
async function takeSplit(view: View): Promise<void> {
  const page = await enter(chrome, "Mika", "pink", view);
  await page.goto(`${url}/split`);
  const [, first, second] = page.frames();
  for (const frame of [first!, second!]) await frame.getByText("Live", { exact: true }).waitFor();
  await second!.locator("#tabs [value=chat]").click();
  await say(second!, "I see nothing yet");
  await first!.locator("#cut").evaluate((button: HTMLElement) => button.click());
  await first!.getByText("Reconnecting", { exact: true }).waitFor();
  await drawLine(page, first!, heart(0.42, 0.21, 0.036));
  await save(page, view.file);
  await page.context().close();
}

function ignore(): void {}

/** Joins without a browser. */
async function join(name: string): Promise<Peer<ClientApi, ServerApi>> {
  const methods: Handlers<ClientApi, Context> = {
    vote: () => true,
    ping: ignore,
    welcome: ignore,
    arrived: ignore,
    people: ignore,
    drew: ignore,
    erased: ignore,
    moved: ignore,
    said: ignore,
    reacted: ignore,
    decided: ignore,
    edited: ignore,
    pointed: ignore,
    stats: ignore,
  };
  const peer = await connect<ServerApi, ClientApi>(`${url}/rpc`, { methods });
  await peer.request("join", { name, color: "green" });
  return peer;
}

/** Writes a picture of the page: as WebP in the documents, where it is part of the package and a PNG has twice the bytes. */
async function save(page: Page, file: string): Promise<void> {
  const png = await page.screenshot();
  if (!file.endsWith(".webp")) return writeFile(file, png);
  const converter = await chrome.newPage();
  const webp = await converter.evaluate(
    async (source) => {
      const image = new Image();
      image.src = source;
      await image.decode();
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d")!.drawImage(image, 0, 0);
      return canvas.toDataURL("image/webp", 0.8);
    },
    `data:image/png;base64,${png.toString("base64")}`,
  );
  await converter.close();
  await writeFile(file, Buffer.from(webp.split(",")[1]!, "base64"));
}

/** Shows three people in the stylesheet, one of them with completions. */
async function styleTogether(page: Page, left: Page, right: Page): Promise<void> {
  for (const each of [page, left, right]) await open(each, "css");
  // Types for some seconds, so that the curves have a shape.
  await caretTo(right, "transition: none");
  await right.keyboard.type(" /* it still moves, but does not glide */", { delay: 110 });
  await page.locator(".cm-line", { hasText: "rebeccapurple" }).waitFor();
  await left.locator(".cm-line", { hasText: "colr" }).getByText("rebeccapurple").dblclick();
  await caretTo(page, "place-items");
  await page.keyboard.type("\nbackgr");
  await page.getByRole("option", { name: "background", exact: true }).click();
  await page.keyboard.type("re");
  await page.getByRole("option", { name: "rebeccapurple" }).waitFor();
  await page.locator("#problems", { hasText: "1 problem" }).waitFor();
  await right.keyboard.press("ArrowLeft");
  await page.waitForTimeout(500);
}

/** Shows three people in the server's settings, one of them with the explanation of a setting. */
async function configureTogether(page: Page, left: Page, right: Page): Promise<void> {
  for (const each of [page, left, right]) await open(each, "json");
  await caretTo(left, "maxConnections");
  await caretTo(right, "origins");
  await page.locator(".file:visible .cm-line", { hasText: "link" }).getByText("link").hover();
  await page.locator(".cm-tooltip-hover").waitFor();
  await page.waitForTimeout(600);
}

/** Opens a file, and waits until the language server has found its mistake. */
async function open(page: Page, language: string): Promise<void> {
  await page.click(`#${language}-tab`);
  await page.getByText(`${language} language server: ready`).waitFor();
  await page.locator(".file:visible .cm-lintRange").first().waitFor();
}

async function caretTo(page: Page, text: string): Promise<void> {
  await page.locator(".file:visible .cm-line", { hasText: text }).first().click();
  await page.keyboard.press("End");
}

async function enter(browser: Browser, name: string, color: string, view: View): Promise<Page> {
  const { width, height, colorScheme } = view;
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    hasTouch: Math.min(width, height) < 500,
  });
  await context.addInitScript((profile) => localStorage.setItem("reciproc-demo", JSON.stringify(profile)), {
    name,
    color,
  });
  const page = await context.newPage();
  await page.goto(url);
  await page.getByText("Live", { exact: true }).waitFor();
  return page;
}

async function paint(left: Page, right: Page): Promise<void> {
  // A sun and its rays, hills, a sea of waves, a boat, birds.
  await pick(left, "yellow", "Thick");
  for (let r = 0.004; r < 0.075; r += 0.014) await line(left, arc(0.78, 0.24, r));
  await pick(left, "orange", "Medium");
  for (let a = 0; a < 2 * Math.PI; a += Math.PI / 6) {
    const ray = (r: number): Point => [0.78 + r * Math.cos(a), 0.24 + r * 1.33 * Math.sin(a)];
    await line(left, [ray(0.1), ray(0.115), ray(0.135)]);
  }
  await pick(right, "green", "Thick");
  await line(
    right,
    ridge(0.02, 0.62, (x) => 0.66 - 0.27 * Math.sin((x - 0.02) * 5.236)),
  );
  await pick(right, "green", "Medium");
  await line(
    right,
    ridge(0.3, 0.98, (x) => 0.66 - 0.16 * Math.sin((x - 0.3) * 4.62)),
  );
  await pick(right, "blue", "Medium");
  for (let row = 0; row < 5; row++) {
    await line(
      right,
      ridge(0.03 + row * 0.01, 0.97 - row * 0.012, (x) => 0.7 + row * 0.055 + 0.011 * Math.sin(x * 42 + row * 1.7)),
    );
  }
  await pick(left, "red", "Medium");
  await line(left, [
    [0.34, 0.66],
    [0.37, 0.73],
    [0.4, 0.745],
    [0.5, 0.745],
    [0.53, 0.73],
    [0.56, 0.66],
    [0.45, 0.665],
    [0.34, 0.66],
  ]);
  await pick(left, "ink", "Medium");
  await line(left, [
    [0.45, 0.655],
    [0.45, 0.55],
    [0.45, 0.42],
  ]);
  await pick(left, "pink", "Medium");
  await line(left, [
    [0.46, 0.43],
    [0.5, 0.5],
    [0.535, 0.62],
    [0.5, 0.628],
    [0.46, 0.63],
    [0.46, 0.53],
    [0.46, 0.43],
  ]);
  await pick(left, "violet", "Medium");
  await line(left, [
    [0.44, 0.46],
    [0.41, 0.53],
    [0.375, 0.62],
    [0.41, 0.628],
    [0.44, 0.63],
    [0.44, 0.55],
    [0.44, 0.46],
  ]);
  await pick(right, "ink", "Thin");
  for (const [x, y] of [
    [0.55, 0.2],
    [0.6, 0.27],
    [0.61, 0.15],
  ] as Point[]) {
    await line(right, [
      ...arc(x - 0.02, y, 0.02, Math.PI, 2 * Math.PI),
      ...arc(x + 0.02, y, 0.02, Math.PI, 2 * Math.PI),
    ]);
  }
  await pick(right, "violet", "Medium");
  await write(right, 0.07, 0.1);
  await pick(left, "violet", "Medium");
  await pick(right, "orange", "Medium");
}

/** Writes "hello" in one stroke. */
async function write(page: Page, x: number, y: number): Promise<void> {
  const at = (dx: number, dy: number): Point => [x + dx, y + dy];
  await line(page, [
    at(0, 0),
    at(0, 0.08),
    at(0, 0.16),
    at(0.005, 0.11),
    at(0.03, 0.08),
    at(0.05, 0.11),
    at(0.052, 0.16),
  ]);
  await line(page, [
    at(0.08, 0.12),
    at(0.12, 0.115),
    at(0.115, 0.075),
    at(0.09, 0.078),
    at(0.078, 0.12),
    at(0.09, 0.158),
    at(0.125, 0.15),
  ]);
  await line(page, [at(0.15, 0), at(0.15, 0.1), at(0.152, 0.15), at(0.165, 0.16)]);
  await line(page, [at(0.19, 0), at(0.19, 0.1), at(0.192, 0.15), at(0.205, 0.16)]);
  await line(page, arc(x + 0.25, y + 0.118, 0.032, -1, 2 * Math.PI - 1));
}

async function talk(left: Page, right: Page): Promise<void> {
  await say(right, "who put a boat on my sea?");
  await say(left, "it was drifting by");
  await say(right, "fine, but the hills stay");
  await say(left, "and the sun. the panel below shows our JSON-RPC as it goes by");
  await say(right, "the arrows point both ways!");
}

async function say(page: Page | Frame, text: string): Promise<void> {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
  await page.locator(".line", { hasText: text }).last().waitFor();
}

async function pick(page: Page, color: string, size: string): Promise<void> {
  await page.check(`#colors input[value=${color}]`);
  await page.getByRole("radio", { name: size, exact: true }).check();
}

function line(page: Page, points: readonly Point[]): Promise<void> {
  return drawLine(page, page, points);
}

/** Returns a line from the left to the right. */
function ridge(from: number, to: number, y: (x: number) => number): Point[] {
  return curve(44, (t) => {
    const x = from + (to - from) * t;
    return [x, y(x)];
  });
}
