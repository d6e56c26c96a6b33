import { describe, expect, it } from "vitest";
import { draw, enter, withOne, withTwo } from "./demo.js";

describe("a row of the traffic list", () => {
  it("opens to show the whole message and its answer, and closes", () =>
    withTwo(async (ada, bo) => {
      const long = "a long line ".repeat(20).trim();
      await ada.page.getByLabel("Message").fill(long);
      await ada.page.getByLabel("Message").press("Enter");
      const row = ada.page.locator(".message.outgoing[data-method=say]");
      await expect.poll(() => row.locator(".duration").textContent()).toMatch(/ms$/);
      expect(await row.locator(".whole").count()).toBe(0);
      await row.locator("summary").click();
      await row.locator(".whole").nth(1).waitFor();
      const [call, answer] = (await row.locator(".whole").allTextContents()).map((text) => JSON.parse(text) as object);
      expect(call).toMatchObject({ jsonrpc: "2.0", id: expect.any(Number), method: "say", params: { text: long } });
      expect(answer).toEqual({ jsonrpc: "2.0", id: (call as { id: number }).id, result: null });
      await row.locator("summary").press("Enter");
      expect(await row.locator(".whole").first().isVisible()).toBe(false);
      // A notification has no answer.
      const said = bo.page.locator(".message.incoming[data-method=said]");
      await said.locator("summary").click();
      await said.locator(".whole").first().waitFor();
      expect(await said.locator(".whole").count()).toBe(1);
    }));

  it("shows bytes as base64, and the newest message of a group", () =>
    withTwo(async (ada, bo) => {
      await draw(ada.page, [[0.5, 0.5]]);
      const row = bo.page.locator(".message[data-method=drew]");
      await row.locator("summary").click();
      const { params } = JSON.parse((await row.locator(".whole").textContent())!) as {
        params: { id: string; points: string };
      };
      const numbers = new Uint16Array(Uint8Array.from(Buffer.from(params.points, "base64")).buffer);
      for (const number of numbers) expect(number / 65_535).toBeCloseTo(0.5, 1);
      await draw(ada.page, [[0.1, 0.1]]);
      await expect.poll(() => row.locator(".whole").textContent()).not.toContain(params.id);
    }));

  it("shows the beginning of a message that is longer than 20,000 characters", () =>
    withOne(async (_ada, demo) => {
      await using talker = await enter(demo.url, "Bo");
      for (let i = 0; i < 80; i++) await talker.request("say", { id: `line ${i}`, text: "x".repeat(300) });
      const { page } = await demo.invite("Late");
      const row = page.locator(".message[data-method=welcome]");
      await row.locator("summary").click();
      const text = (await row.locator(".whole").textContent())!;
      const [, more] = /\n\.\.\. (\d+) characters more$/.exec(text)!;
      expect(Number(more)).toBeGreaterThan(4000);
      expect(text).toHaveLength(20_000 + `\n... ${more} characters more`.length);
    }));

  it("shows the error of a call that failed", () =>
    withOne(async ({ page }) => {
      await page.getByLabel("Message").evaluate((input: HTMLInputElement) => (input.value = "x".repeat(301)));
      await page.getByLabel("Message").press("Enter");
      const row = page.locator(".message.failed[data-method=say]");
      await row.locator("summary").click();
      const answer = JSON.parse((await row.locator(".whole").last().textContent())!) as object;
      expect(answer).toMatchObject({ error: { code: -32602, message: expect.stringContaining("Invalid params") } });
      // The visitor gets words instead.
      expect(await page.locator("#notice").textContent()).toBe(
        "The server did not accept that: it is too long, or not complete.",
      );
    }));
});

it("groups the messages of every second below the others", () =>
  withOne(async ({ page }) => {
    await expect.poll(() => page.locator("#periodic-count").textContent()).toMatch(/^×\d+$/);
    expect(await page.locator("#traffic .message:is([data-method=ping], [data-method=stats])").count()).toBe(0);
    expect(await page.locator("#periodic .message").first().isVisible()).toBe(false);
    await page.getByText("Every second").click();
    await expect.poll(() => page.locator("#periodic .message").count()).toBe(2);
    await page.locator("#periodic [data-method=stats] summary").click();
    expect(await page.locator("#periodic .whole").textContent()).toContain('"perSecond"');
  }));
