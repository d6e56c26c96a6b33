/**
 * Takes the pictures of the demo: `node demo/.build/screenshot.js [FOLDER]` (default: those in docs; with a folder,
 * every size and theme). Needs `npm run build` and `tsc -p demo`, and a Chromium: CHROMIUM_PATH, or /usr/bin/chromium.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type Page } from "playwright-core";

type Point = [x: number, y: number];
interface View {
  file: string;
  width: number;
  height: number;
  colorScheme: "light" | "dark";
  tab?: string;
  vote?: boolean;
  editor?: "css" | "json";
}

const folder = process.argv[2];
const docs = (name: string): string => fileURLToPath(new URL(`../../docs/${name}.webp`, import.meta.url));
const wide = { width: 1440, height: 900 };
const phone = { width: 390, height: 844 };
const views: View[] =
  folder === undefined
    ? [
        { file: docs("demo"), ...wide, colorScheme: "light" },
        { file: docs("demo-editor"), ...wide, colorScheme: "light", editor: "css" },
      ]
    : (["light", "dark"] as const).flatMap((colorScheme): View[] => [
        { file: `${folder}/wide-${colorScheme}.png`, ...wide, colorScheme },
        { file: `${folder}/vote-${colorScheme}.png`, ...wide, colorScheme, vote: true },
        ...["chat", "traffic", "people"].map((tab) => {
          return { file: `${folder}/phone-${tab}-${colorScheme}.png`, ...phone, colorScheme, tab };
        }),
        ...(["css", "json"] as const).flatMap((editor): View[] => [
          { file: `${folder}/editor-${editor}-${colorScheme}.png`, ...wide, colorScheme, editor },
          { file: `${folder}/phone-${editor}-${colorScheme}.png`, ...phone, colorScheme, editor },
        ]),
      ]);

const server = spawn(process.execPath, [fileURLToPath(new URL("server.js", import.meta.url))], {
  env: { ...process.env, PORT: "0" },
  stdio: ["ignore", "pipe", "inherit"],
});
process.on("exit", () => server.kill());
const [banner] = (await once(server.stdout, "data")) as [Buffer];
const url = /http:\S+/.exec(banner.toString())![0];
const chrome = await chromium.launch({
  executablePath: process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic"],
});

const ada = await enter(chrome, "Ada", "violet", { file: "", ...wide, colorScheme: "light" });
const bo = await enter(chrome, "Bo", "orange", { file: "", width: 1200, height: 860, colorScheme: "light" });
await paint(ada, bo);
await talk(ada, bo);

for (const view of views) {
  const page = await enter(chrome, "Mika", "pink", view);
  if (view.editor !== undefined) {
    for (const each of [page, ada, bo]) await each.click("#editor-tab");
    await (view.editor === "css" ? styleTogether : configureTogether)(page, ada, bo);
    await save(page, view.file);
    // Restores the text for the next view.
    for (const each of [page, bo]) for (let i = 0; i < 8; i++) await each.keyboard.press("Control+z");
    for (const each of [ada, bo]) await each.click("#board-tab");
    await page.context().close();
    continue;
  }
  if (view.tab !== undefined) await page.click(`#tabs button[value=${view.tab}]`);
  await line(page, heart(0.42, 0.21, 0.036));
  // The curves need some seconds to have a shape, and the shape needs some traffic.
  for (let i = 0; i < 16; i++) {
    await glide(ada, [0.3 + i * 0.015, 0.35], [0.34 + i * 0.012, 0.3]);
    if (i % 4 > 1) await glide(bo, [0.78 - i * 0.01, 0.7], [0.8 - i * 0.012, 0.62]);
    await page.waitForTimeout(450);
  }
  if (view.vote) {
    await ada.click("#clear");
    await page.waitForTimeout(1000);
  } else {
    await ada.click("#clear");
    await page.waitForTimeout(1700);
    for (const voter of [page, bo]) await voter.click("#refuse");
    await page.locator("#notice").waitFor();
    await page.locator("#notice").waitFor({ state: "hidden" });
    if (view.tab === undefined) await say(page, "hello from a third window");
    await cheer([page, ada, bo]);
  }
  await glide(ada, [0.44, 0.3], [0.47, 0.27]);
  await glide(bo, [0.71, 0.55], [0.69, 0.53]);
  await page.waitForTimeout(400);
  await save(page, view.file);
  if (view.vote) for (const voter of [page, bo]) await voter.click("#refuse");
  await page.context().close();
}
await chrome.close();
process.exit();

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
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, hasTouch: width < 500 });
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
  for (let r = 0.004; r < 0.075; r += 0.014) await line(left, arc(0.78, 0.24, r, 0, 2 * Math.PI));
  await pick(left, "orange", "Medium");
  for (let a = 0; a < 2 * Math.PI; a += Math.PI / 6) {
    const ray = (r: number): Point => [0.78 + r * Math.cos(a), 0.24 + r * 1.33 * Math.sin(a)];
    await line(left, [ray(0.1), ray(0.115), ray(0.135)]);
  }
  await pick(right, "green", "Thick");
  await line(
    right,
    curve(0.02, 0.62, (x) => 0.66 - 0.27 * Math.sin((x - 0.02) * 5.236)),
  );
  await pick(right, "green", "Medium");
  await line(
    right,
    curve(0.3, 0.98, (x) => 0.66 - 0.16 * Math.sin((x - 0.3) * 4.62)),
  );
  await pick(right, "blue", "Medium");
  for (let row = 0; row < 5; row++) {
    await line(
      right,
      curve(0.03 + row * 0.01, 0.97 - row * 0.012, (x) => 0.7 + row * 0.055 + 0.011 * Math.sin(x * 42 + row * 1.7)),
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

async function say(page: Page, text: string): Promise<void> {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
  await page.locator(".line", { hasText: text }).last().waitFor();
}

async function cheer(pages: Page[]): Promise<void> {
  for (const [i, emoji] of ["🎉", "❤️", "🚀"].entries()) {
    await pages[i % pages.length]!.click(`#emojis button[value="${emoji}"]`);
    await pages[0]!.waitForTimeout(240);
  }
}

async function pick(page: Page, color: string, size: string): Promise<void> {
  await page.check(`#colors input[value=${color}]`);
  await page.getByRole("radio", { name: size, exact: true }).check();
}

async function line(page: Page, points: Point[]): Promise<void> {
  const { x, y, width, height } = (await page.locator("#canvas").boundingBox())!;
  const to = ([px, py]: Point): Promise<void> => page.mouse.move(x + px * width, y + py * height);
  await to(points[0]!);
  await page.mouse.down();
  for (const point of points) await to(point);
  await page.mouse.up();
}

async function glide(page: Page, from: Point, to: Point): Promise<void> {
  const { x, y, width, height } = (await page.locator("#canvas").boundingBox())!;
  await page.mouse.move(x + from[0] * width, y + from[1] * height);
  await page.mouse.move(x + to[0] * width, y + to[1] * height, { steps: 8 });
}

function heart(x: number, y: number, size: number): Point[] {
  return Array.from({ length: 41 }, (_, i) => {
    const t = (i / 40) * 2 * Math.PI;
    const up = 13 * Math.cos(t) - 5 * Math.cos(2 * t) - 2 * Math.cos(3 * t) - Math.cos(4 * t);
    return [x + (size * 16 * Math.sin(t) ** 3) / 17, y - (size * 1.33 * up) / 17];
  });
}

function arc(cx: number, cy: number, r: number, from: number, to: number): Point[] {
  const steps = 26;
  return Array.from({ length: steps + 1 }, (_, i) => {
    const a = from + ((to - from) * i) / steps;
    return [cx + r * Math.cos(a), cy + r * 1.33 * Math.sin(a)];
  });
}

function curve(from: number, to: number, y: (x: number) => number): Point[] {
  const steps = 44;
  return Array.from({ length: steps + 1 }, (_, i) => {
    const x = from + ((to - from) * i) / steps;
    return [x, y(x)];
  });
}
