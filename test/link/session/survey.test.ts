/** The model's states, all of them. `RECIPROC_SESSION_BOUNDS`, such as `[2,2,true]`, takes it further. */
import { afterAll, describe, expect, it, vi } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { Mutator, type Change } from "../../support/mutator.js";
import type { Modules } from "./rig.js";
import { Breach } from "./world.js";
import { survey, type Bounds, type Survey } from "./survey.js";

useFakeClock();

const [messages, losses, expires] = JSON.parse(process.env["RECIPROC_SESSION_BOUNDS"] ?? "[1,1,true]") as [
  number,
  number,
  boolean,
];
/** For bounds that are given: they may be wide. */
const LONG_MS = 36_000_000;

const mutator = new Mutator(["core", "link"]);
afterAll(() => mutator[Symbol.dispose]());

async function look(bounds: Bounds, ...changes: Change[]): Promise<Survey> {
  const load = mutator.mutate(changes, true);
  const modules = { ...(await load("link/client.ts")), ...(await load("link/sessions.ts")) } as Modules;
  return survey(modules, bounds, (ms) => void vi.advanceTimersByTime(ms));
}

describe("a session, from its first frame on", () => {
  it(
    `keeps its word in every state that ${messages} messages of each end, ${losses} lost sockets and ${expires ? "one expiry" : "no expiry"} can lead to (for 1, 1 and one: some 20,000 states, up to 22 steps deep, all of them)`,
    { timeout: LONG_MS },
    async () => {
      const found = await look({ messages, losses, expires });
      // Not fewer: a survey that stops early proves nothing. How many more there are depends on what the ends remember.
      expect(found.states).toBeGreaterThan(18_000);
      expect(found.depth).toBeGreaterThanOrEqual(20);
    },
  );

  it.each<[string, Change]>([
    [
      "2: the old socket's frames are not read",
      {
        path: "link/packed.ts",
        find: "if (this.#out.socket === socket) this.#take(text);",
        replace: "this.#take(text);",
      },
    ],
    ["4: a token is new at each resume", { path: "link/client.ts", find: "this.#token = resumed.token;", replace: "" }],
    [
      "5: replay leaves nothing out",
      { path: "link/session.ts", find: "this.next = received + 1;", replace: "this.next = received + 2;" },
    ],
    [
      "9: a session whose token was never acked ends with its socket",
      {
        path: "link/sessions.ts",
        find: "return this.#confirmed !== undefined;",
        replace: "return this.link.session !== undefined;",
      },
    ],
  ])("does not without rule %s", { timeout: LONG_MS }, async (_rule, change) => {
    const found = look({ messages: 1, losses: 1, expires: true }, change);
    await expect(found).rejects.toMatchObject({ cause: expect.any(Breach) });
  });
});
