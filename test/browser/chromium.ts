/** A Chromium for the tests: one that is there, or one that is installed now. */
import { join } from "node:path";
import { chromium, type Browser } from "playwright-core";
import { aptInstall, canRun, onPath, run } from "../support/debian.js";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const USUAL_PLACES = [
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  ...["PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"].flatMap((name) => {
    const folder = process.env[name];
    return folder === undefined ? [] : join(folder, "Google", "Chrome", "Application", "chrome.exe");
  }),
];
const CURE = "no Chromium found and none could be installed; install Chromium or Chrome, or set CHROMIUM_PATH to one";

/** What keeps Chromium off the network and quiet; `--no-sandbox` because containers run as root. */
const ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Starts a Chromium. `args` are added to the usual ones. */
export async function launch(args: readonly string[] = []): Promise<Browser> {
  return chromium.launch({ executablePath: await ensureChromium(), args: [...ARGS, ...args] });
}

/** The path of a Chromium that can be run. Installs one if need be; rejects, saying what to do, if that fails. */
export async function ensureChromium(): Promise<string> {
  const given = process.env["CHROMIUM_PATH"];
  if (given !== undefined && given !== "") {
    if (canRun(given)) return given;
    throw new Error(`CHROMIUM_PATH is ${given}, which cannot be run`);
  }
  const found = find() ?? (await install());
  if (found === undefined) throw new Error(CURE);
  return found;
}

function find(): string | undefined {
  return [...onPath(...NAMES), ...USUAL_PLACES, chromium.executablePath()].find(canRun);
}

async function install(): Promise<string | undefined> {
  const installed = (await aptInstall("chromium")) ? find() : undefined;
  if (installed !== undefined) return installed;
  const cli = join(import.meta.dirname, "../../node_modules/playwright-core/cli.js");
  return (await run([process.execPath, cli, "install", "chromium"])) ? find() : undefined;
}
