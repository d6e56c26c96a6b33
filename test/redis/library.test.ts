/** Imports `redis/client`: which version of the client library is used is decided there, before any connection. */
import { beforeEach, expect, it, vi } from "vitest";

beforeEach(() => vi.resetModules());

/** Imports the library anew, with these packages installed. */
async function load(packages: Record<"@redis/client" | "redis", object>): Promise<unknown> {
  for (const [name, found] of Object.entries(packages)) vi.doMock(name, () => found);
  const { loadLibrary } = await import("../../src/redis/client.js");
  return loadLibrary();
}

const OLD = { createClient: () => "old" };
const NEW = { createClient: () => "new", RedisClient: Object };

it("the engine redis uses the package `redis` if `@redis/client` is an earlier version", async () => {
  expect(await load({ "@redis/client": OLD, redis: NEW })).toMatchObject({ createClient: NEW.createClient });
});

it("the engine redis names the packages that are an earlier version", async () => {
  const error = await load({ "@redis/client": OLD, redis: OLD }).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
  expect(String(error)).toMatch(/version 6, is not installed: .* earlier version of `@redis\/client` and `redis`$/);
});
