import { describe, expect, it } from "vitest";
import { run } from "./program.js";
import { reciprocServer, plainServer } from "./server.js";

describe("reciproc notify", () => {
  it("exits after the server has read the notification", async () => {
    const seen: unknown[] = [];
    const { url } = await reciprocServer({
      fallback: (params: unknown, { method, id }: any) => void seen.push({ method, id: id as unknown, params }),
    });
    expect(await run(["notify", url, "moved", '{"x":4}'])).toEqual({ code: 0, stdout: "", stderr: "" });
    expect(await run(["notify", url, "piped", "-", "--json"], "[1]")).toEqual({ code: 0, stdout: "", stderr: "" });
    expect(await run(["notify", url, "bare"])).toMatchObject({ code: 0 });
    expect(seen).toEqual([
      { method: "moved", id: undefined, params: { x: 4 } },
      { method: "piped", id: undefined, params: [1] },
      { method: "bare", id: undefined, params: undefined },
    ]);
  });

  it("delivers a large notification completely", async () => {
    const lengths: number[] = [];
    const { url } = await reciprocServer({
      fallback: ([text]: [string]) => void lengths.push(text.length),
      limits: { maxMessageBytes: 2 ** 23 },
    });
    expect(await run(["notify", url, "log", "-"], JSON.stringify(["x".repeat(5_000_000)]))).toMatchObject({ code: 0 });
    expect(lengths).toEqual([5_000_000]);
  });

  it("exits 2 when the connection is lost before the close is answered", async () => {
    const url = await plainServer((socket) => socket.on("message", () => socket.terminate()));
    const { code, stderr } = await run(["notify", url, "moved"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^lost the connection to 127\.0\.0\.1:\d+: it ended without a close; "moved" may not have arrived\n$/,
    );
  });

  it("exits 2 when the server closes for a reason of its own", async () => {
    const { url } = await reciprocServer({ limits: { maxMessageBytes: 100 } });
    const { code, stdout } = await run(["notify", url, "moved", JSON.stringify(["x".repeat(200)]), "--json"]);
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: "CONNECTION_LOST", message: expect.stringContaining("closed with 1009") as string },
    });
  });
});
