/** A Chromium for the tests, found or installed. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium, type Browser, type BrowserContext } from "playwright-core";
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

/** Arguments that keep Chromium off the network and quiet; `--no-sandbox` because containers run as root. */
const ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  // A foreign name of this machine.
  "--host-resolver-rules=MAP elsewhere.test 127.0.0.1",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // Otherwise Chromium keeps a spare process for each context, which takes a tenth of all its CPU time.
  "--renderer-process-limit=1",
];

/** How long Playwright waits for what a test names: less than the limit of a test, so that the failure names what is missing. */
const PATIENCE_MS = 240_000;

function patient(context: BrowserContext): BrowserContext {
  context.setDefaultTimeout(PATIENCE_MS);
  return context;
}

export async function launch(): Promise<Browser> {
  const options = { executablePath: await ensureChromium(), args: ARGS, timeout: PATIENCE_MS };
  return (await chromium.launch(options)).on("context", patient);
}

/** Starts a Chromium whose background tabs are hidden and can be frozen, as none that Playwright starts. Returns its first window. */
export async function launchTabs(): Promise<{ context: BrowserContext } & AsyncDisposable> {
  const profile = await mkdtemp(join(tmpdir(), "reciproc-chromium-"));
  const args = [...ARGS, "--headless=new", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"];
  const child = spawn(await ensureChromium(), args, { stdio: ["ignore", "ignore", "pipe"] });
  const gone = once(child, "exit");
  let address: string | undefined;
  for await (const line of createInterface(child.stderr)) {
    address = /^DevTools listening on (ws:\S+)$/.exec(line)?.[1];
    if (address !== undefined) break;
  }
  if (address === undefined) throw new Error(`Chromium ended with ${child.exitCode} and printed no address`);
  child.stderr.resume();
  const browser = await chromium.connectOverCDP(address, { noDefaults: true });
  return {
    context: patient(browser.contexts()[0]!),
    async [Symbol.asyncDispose]() {
      await browser.close();
      child.kill();
      await gone;
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Resolves with the path of a Chromium. Installs one if necessary. If that fails, rejects with the remedy. */
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
