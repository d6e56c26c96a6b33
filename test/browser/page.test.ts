import { describe, expect, it } from "vitest";
import { interceptSent, newPage } from "./browser.js";
import { draw, live, PHONE, picture, say, strokes, withDemo, withOne } from "./demo.js";

describe("the page", () => {
  it("draws with a finger on a phone, does not scroll for it, and fits in its width", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("A name of 24 characters!", PHONE);
      const { x, y, width, height } = (await page.locator("#canvas").boundingBox())!;
      const cdp = await page.context().newCDPSession(page);
      const touch = (type: string, points: { x: number; y: number }[]): Promise<unknown> =>
        cdp.send("Input.dispatchTouchEvent", { type, touchPoints: points } as never);
      await touch("touchStart", [{ x: x + width / 2, y: y + height * 0.8 }]);
      for (let i = 8; i > 1; i--) await touch("touchMove", [{ x: x + width / 2, y: y + (height * i) / 10 }]);
      await touch("touchEnd", []);
      await strokes(page, 1);
      const columns = (await picture(page)).split("\n").filter((row) => row.includes("X"));
      expect(columns.length).toBeGreaterThan(10);
      expect(await page.evaluate(() => document.scrollingElement!.scrollTop)).toBe(0);
      await page.getByRole("button", { name: "Chat", exact: true }).click();
      await say(page, "x".repeat(300));
      await page.locator(".line").waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
    }));

  it("gives each window of a browser a name and a colour of its own, which a reload keeps", () =>
    withOne(async ({ page: first }) => {
      const windows = [first];
      for (let i = 0; i < 2; i++) {
        const opened = first.waitForEvent("popup");
        // The link opens an independent window. `window.open` copies the session storage of the first.
        if (i === 0) await first.getByRole("link", { name: "Open a second window" }).click();
        else await first.evaluate(() => void window.open("/"));
        windows.push(await opened);
        await live(windows.at(-1)!);
      }
      const identities = (): Promise<[string, string | null][]> =>
        Promise.all(
          windows.map(async (page) => [
            await page.getByLabel("You are").inputValue(),
            await page.locator("#colors :checked").getAttribute("value"),
          ]),
        );
      await expect.poll(async () => (await identities()).map(([name]) => name)).toEqual(["Ada", "Ada 2", "Ada 3"]);
      const before = await identities();
      expect(new Set(before.map(([, color]) => color)).size).toBe(3);
      await expect
        .poll(() => first.locator(".person .name").allTextContents())
        .toEqual(["Ada (you)", "Ada 2", "Ada 3"]);
      for (const page of windows) {
        await page.reload();
        await live(page);
      }
      expect(await identities()).toEqual(before);
      for (const page of windows.slice(1)) await page.close();
    }));

  it("starts with a random name if the stored one is invalid, reports a refusal, and connects by its button", () =>
    withDemo(async (demo) => {
      const page = await newPage();
      await page.addInitScript(() => {
        // Changes the first visit only.
        if (sessionStorage.getItem("asked") !== null) return;
        sessionStorage.setItem("asked", "yes");
        localStorage.setItem("reciproc-demo", JSON.stringify({ name: " ", color: "nope" }));
      });
      const sent = await interceptSent(page, () => (text, send) => send(text.replace('"color":"', '"color":"not ')));
      await page.goto(demo.url);
      await page.getByRole("alert").getByText("The server did not let you in: ").waitFor();
      await page.getByText("Closed", { exact: true }).waitFor();
      await sent.dispose();
      await page.getByRole("button", { name: "Reload" }).click();
      await live(page);
      expect(await page.getByRole("alert").count()).toBe(0);
      expect(await page.getByLabel("You are").inputValue()).toMatch(/^[A-Z][a-z]+ [A-Z][a-z]+$/);
      expect(await page.locator("#colors :checked").count()).toBe(1);
      await page.context().close();
    }));

  it("undoes by Ctrl+Z outside of text fields, takes whole characters of a name, and sends a line once", () =>
    withOne(async ({ page }) => {
      const name = page.getByLabel("You are");
      await name.fill("  ");
      await name.press("Enter");
      await expect.poll(() => name.inputValue()).toBe("Ada");
      const family = "\u{1F468}\u200D\u{1F469}\u200D\u{1F467}\u200D\u{1F466}";
      await name.fill("");
      // As a paste does.
      await page.keyboard.insertText(family.repeat(3));
      expect(await name.inputValue()).toBe(family.repeat(2));
      await name.press("Enter");
      await page.locator(".person", { hasText: `${family.repeat(2)} (you)` }).waitFor();
      // In a full field, the end of an inserted text is dropped.
      await name.fill("x".repeat(23));
      await name.press("Home");
      await page.keyboard.insertText("y\u{1F600}");
      expect(await name.inputValue()).toBe(`y${"x".repeat(23)}`);

      const field = page.getByLabel("Message");
      // All in one tick, so that no answer can arrive in between.
      await field.evaluate((input: HTMLInputElement) => {
        input.value = "one";
        input.form!.requestSubmit();
        input.form!.requestSubmit();
        input.value = "two";
      });
      await page.locator(".line").getByText("one").waitFor();
      await field.press("Enter");
      await page.locator(".line").getByText("two").waitFor();
      expect(await page.locator(".line .text").allTextContents()).toEqual(["one", "two"]);
      // The server accepts 300 characters at most, so the line returns to the field.
      const long = "x".repeat(301);
      await field.evaluate((input: HTMLInputElement, text) => (input.value = text), long);
      await field.press("Enter");
      await page.locator("#notice").waitFor();
      expect(await field.inputValue()).toBe(long);

      // Last, because the browser undoes what was written in the fields too.
      for (const y of [0.2, 0.4]) await draw(page, [[0.5, y]]);
      await strokes(page, 2);
      await page.getByLabel("Message").press("Control+z");
      await page.getByLabel("Red", { exact: true }).press("Control+z");
      await strokes(page, 1);
      await page.locator("body").press("Meta+z");
      await strokes(page, 0);
    }));
});
