/**
 * Records the film of the demo: `node demo/.build/film.js [FILE]` (default: docs/demo-film.webp). Twenty seconds of the split view.
 * Needs `npm run build`, `tsc -p demo`, a Chromium (CHROMIUM_PATH, or /usr/bin/chromium), and `img2webp` of the Debian package
 * `webp`.
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Frame, Page } from "playwright-core";
import { arc, curve, drawLine, heart, openStage, type Point } from "./stage.js";

/** A picture, and the time when it was taken, in milliseconds. */
interface Picture {
  file: string;
  at: number;
}

const SIZE = { width: 1280, height: 800 };
const LENGTH_MS = 20_000;
/** How long the last picture is shown. */
const LAST_MS = 1000;
/** Pictures closer than this are left out, which halves the file. */
const LEAST_MS = 80;
const target = process.argv[2] ?? fileURLToPath(new URL("../../docs/demo-film.webp", import.meta.url));

const folder = await mkdtemp(join(tmpdir(), "reciproc-film-"));
const { url, chrome } = await openStage({ CUT_MS: "6000" });
const page = await chrome.newPage({ viewport: SIZE, colorScheme: "light" });
await page.addInitScript(() => {
  sessionStorage.setItem("reciproc-demo", JSON.stringify({ name: "Ada", color: "violet" }));
  sessionStorage.setItem("reciproc-demo-2", JSON.stringify({ name: "Bo", color: "orange" }));
});
await page.goto(`${url}/split`);
const [ada, bo] = [await seat(1), await seat(2)];

const pictures = await record(page, async () => {
  await caption("Two people, each with a connection. They draw on one board.");
  await pause(800);
  await line(ada, wave(0.08, 0.92, 0.8, 0.025));
  await line(bo, arc(0.8, 0.25, 0.1));
  await line(ada, hill(0.1, 0.55, 0.78, 0.4));
  await line(bo, hill(0.4, 0.95, 0.78, 0.25));
  await say(bo, "nice hills");
  await pause(800);
  await caption("Ada's network is cut. She draws and writes on: her messages wait.");
  await ada.locator("#cut").click();
  await ada.getByText("Reconnecting", { exact: true }).waitFor();
  await say(ada, "can you see my heart?");
  await line(ada, heart(0.52, 0.3, 0.08));
  await ada.getByText("Connected again").waitFor();
  await caption("The network is back. Everything arrived, once and in order.");
  await pause(3500);
  await caption("Clear the board? The server asks the other person, in the middle of Ada's call.");
  await ada.locator("#clear").click();
  await bo.locator("#agree").waitFor();
  await pause(1800);
  await bo.locator("#agree").click();
  await pause(1500);
});
encode(pictures);
await chrome.close();
await rm(folder, { recursive: true });
process.exit();

/** Runs `act`, and writes a picture whenever the page has changed. */
async function record(of: Page, act: () => Promise<void>): Promise<Picture[]> {
  const taken: Picture[] = [];
  const writing: Promise<void>[] = [];
  const devtools = await of.context().newCDPSession(of);
  devtools.on("Page.screencastFrame", ({ data, metadata, sessionId }) => {
    // Rejects if the page was closed meanwhile.
    devtools.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
    const at = 1000 * metadata.timestamp!;
    if (at - (taken.at(-1)?.at ?? 0) < LEAST_MS) return;
    const file = join(folder, `${String(taken.length).padStart(4, "0")}.png`);
    taken.push({ file, at });
    writing.push(writeFile(file, Buffer.from(data, "base64")));
  });
  await devtools.send("Page.startScreencast", { format: "png", maxWidth: SIZE.width, maxHeight: SIZE.height });
  await act();
  await devtools.send("Page.stopScreencast");
  await Promise.all(writing);
  return taken;
}

/** Writes the film. Each picture is shown until the next. A slow machine took longer, so the times are scaled to the length. */
function encode(taken: readonly Picture[]): void {
  const [first, last] = [taken[0]!.at, taken.at(-1)!.at + LAST_MS];
  const frames = taken.flatMap(({ file, at }, i) => {
    const ms = (((taken[i + 1]?.at ?? last) - at) * LENGTH_MS) / (last - first);
    return ["-d", String(Math.round(ms)), file];
  });
  execFileSync("img2webp", ["-loop", "0", "-lossy", "-q", "60", "-m", "5", ...frames, "-o", target], {
    stdio: "inherit",
  });
}

function pause(ms: number): Promise<void> {
  return page.waitForTimeout(ms);
}

async function seat(number: number): Promise<Frame> {
  const handle = await page.locator(`iframe[src$="${number}"]`).elementHandle();
  const frame = (await handle?.contentFrame())!;
  await frame.getByText("Live", { exact: true }).waitFor();
  await frame.locator("#tabs [value=chat]").click();
  return frame;
}

/** Writes what happens into the line of the split view. */
async function caption(text: string): Promise<void> {
  await page.locator(".about").evaluate((about, words) => (about.textContent = words), text);
}

async function say(who: Frame, text: string): Promise<void> {
  await who.locator("#text").fill(text);
  await page.waitForTimeout(300);
  await who.locator("#text").press("Enter");
}

function line(who: Frame, points: readonly Point[]): Promise<void> {
  return drawLine(page, who, points, { msPerPoint: 16 });
}

function wave(from: number, to: number, y: number, height: number): Point[] {
  return curve(34, (t) => [from + (to - from) * t, y + height * Math.sin(t * 26)]);
}

function hill(from: number, to: number, y: number, height: number): Point[] {
  return curve(24, (t) => [from + (to - from) * t, y - height * Math.sin(t * Math.PI)]);
}
