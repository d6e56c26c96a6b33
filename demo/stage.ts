/** A demo and a Chromium for the scripts that take pictures of it, and the lines that these scripts draw. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type Frame, type Page } from "playwright-core";

/** A place on the board, as fractions of its width and height. */
export type Point = readonly [x: number, y: number];

/**
 * Starts the demo's server with an empty board, and a Chromium: that of CHROMIUM_PATH, or /usr/bin/chromium. The server ends with
 * this process.
 */
export async function openStage(env: Readonly<Record<string, string>> = {}): Promise<{ url: string; chrome: Browser }> {
  const server = spawn(process.execPath, [fileURLToPath(new URL("server.js", import.meta.url))], {
    env: { ...process.env, PORT: "0", BOARD_FILE: "", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.on("exit", () => server.kill());
  const [banner] = (await once(server.stdout, "data")) as [Buffer];
  const chrome = await chromium.launch({
    executablePath: process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic"],
  });
  return { url: /http:\S+/.exec(banner.toString())![0], chrome };
}

/** Draws a line with the mouse of a page. `board` is the page itself, or the frame in it that has the board. */
export async function drawLine(
  page: Page,
  board: Page | Frame,
  points: readonly Point[],
  { msPerPoint = 0 } = {},
): Promise<void> {
  const { x, y, width, height } = (await board.locator("#canvas").boundingBox())!;
  for (const [i, point] of points.entries()) {
    await page.mouse.move(x + point[0] * width, y + point[1] * height);
    if (i === 0) await page.mouse.down();
    if (msPerPoint > 0) await page.waitForTimeout(msPerPoint);
  }
  await page.mouse.up();
}

/** Returns the points of a curve: `at` maps the numbers from 0 to 1 to them. */
export function curve(steps: number, at: (t: number) => Point): Point[] {
  return Array.from({ length: steps + 1 }, (_, i) => at(i / steps));
}

/** Returns a part of a circle. The radius is a fraction of the board's width, and the angles are in radians. */
export function arc(x: number, y: number, radius: number, from = 0, to = 2 * Math.PI): Point[] {
  return curve(26, (t) => {
    const angle = from + (to - from) * t;
    return [x + radius * Math.cos(angle), y + (radius * Math.sin(angle) * 4) / 3];
  });
}

/** Returns a heart of the width `2 * size`. */
export function heart(x: number, y: number, size: number): Point[] {
  return curve(34, (t) => {
    const a = t * 2 * Math.PI;
    const up = 13 * Math.cos(a) - 5 * Math.cos(2 * a) - 2 * Math.cos(3 * a) - Math.cos(4 * a);
    return [x + size * Math.sin(a) ** 3, y - (size * up * 4) / 3 / 17];
  });
}
