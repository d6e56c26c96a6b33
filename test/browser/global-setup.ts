/** Before any test: there is a Chromium, and every test file finds the same one. */
import { ensureChromium } from "./chromium.js";

export default async function setup(): Promise<void> {
  process.env["CHROMIUM_PATH"] = await ensureChromium();
}
