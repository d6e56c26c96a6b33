/** Finds or installs a Chromium before any test, for all test files. */
import { ensureChromium } from "./chromium.js";

export default async function setup(): Promise<void> {
  process.env["CHROMIUM_PATH"] = await ensureChromium();
}
