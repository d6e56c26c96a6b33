/** A Chromium for the tests: one that is there, or one that is installed now. */
import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium, type Browser } from "playwright-core";

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
  const found = find() ?? install();
  if (found === undefined) throw new Error(CURE);
  return found;
}

function find(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const named = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  return [...named, ...USUAL_PLACES, chromium.executablePath()].find(canRun);
}

function install(): string | undefined {
  if (canRun("/usr/bin/apt-get")) {
    const root = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
    const done =
      run([...root, "apt-get", "update"]) &&
      run([...root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "chromium"]);
    const installed = done ? find() : undefined;
    if (installed !== undefined) return installed;
  }
  const cli = join(import.meta.dirname, "../../node_modules/playwright-core/cli.js");
  return run([process.execPath, cli, "install", "chromium"]) ? find() : undefined;
}

function run([command, ...args]: string[]): boolean {
  try {
    execFileSync(command!, args, { stdio: "inherit" });
    return true;
  } catch {
    // It has said on the terminal what was wrong; the next way is tried.
    return false;
  }
}

function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
