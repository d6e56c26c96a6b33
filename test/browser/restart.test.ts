/** The board survives a restart of its server. */
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { draw, leave, pixels, startDemo, strokes, visit, withTwo } from "./demo.js";

vi.setConfig({ testTimeout: 90_000 });

describe("the board after a restart of the server", () => {
  it.each(["SIGTERM", "SIGKILL"] as const)(
    "has the drawing and the chat from before %s, and what was done meanwhile",
    async (signal) => {
      const folder = await mkdtemp(join(tmpdir(), "reciproc-board-"));
      const env = { BOARD_FILE: join(folder, "board.jsonl") };
      await withTwo(
        async (ada, bo, first) => {
          await draw(ada.page, [
            [0.1, 0.1],
            [0.9, 0.9],
          ]);
          await draw(bo.page, [[0.5, 0.2]]);
          for (const { page } of [ada, bo]) await strokes(page, 2);
          await ada.page.getByLabel("Message").fill("before");
          await ada.page.getByLabel("Message").press("Enter");
          await bo.page.locator(".line", { hasText: "before" }).waitFor();
          await first.kill(signal);
          for (const { page } of [ada, bo]) await page.getByText("Reconnecting", { exact: true }).waitFor();
          await draw(ada.page, [[0.2, 0.8]]);
          await bo.page.getByLabel("Message").fill("meanwhile");
          await bo.page.getByLabel("Message").press("Enter");
          await using second = await startDemo({ ...env, PORT: new URL(first.url).port });
          const late = await visit(second.url, "Late");
          for (const { page } of [ada, bo, late]) {
            await strokes(page, 3);
            await expect
              .poll(() => page.locator(".line:not(.pending) .text").allTextContents())
              .toEqual(["before", "meanwhile"]);
          }
          for (const { page } of [bo, late]) await expect.poll(() => pixels(page)).toBe(await pixels(ada.page));
          expect(await bo.page.locator(".line.pending").count()).toBe(0);
          // A person can undo what they drew before the restart, because the server knows their page again.
          for (let i = 0; i < 2; i++) await ada.page.getByRole("button", { name: "Undo" }).click();
          for (const { page } of [ada, bo, late]) await strokes(page, 1);
          await leave(late);
        },
        { env, mayComplain: true },
      );
      await rm(folder, { recursive: true });
    },
  );

  it("is in a file for each port, of which the server prints the name, and which other users cannot read", async () => {
    await using any = await startDemo();
    // The port is taken, so this server takes one of the next.
    await using named = await startDemo({ PORT: new URL(any.url).port, BOARD_FILE: undefined });
    await expect.poll(() => named.printed()).toContain("The board is kept in ");
    const [, file] = /^The board is kept in (.+)$/m.exec(named.printed())!;
    expect(basename(file!)).toBe(`board-${new URL(named.url).port}.jsonl`);
    expect((await stat(file!)).mode & 0o077).toBe(0);
    await rm(file!);
  });
});
