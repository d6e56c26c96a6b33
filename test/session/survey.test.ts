/** Every state of a session, with the oracle beside it. `RECIPROC_SESSION_BOUNDS`, such as `[2,2,true]`, takes it further. */
import { describe, expect, it } from "vitest";
import { survey } from "./survey.js";

const [messages, losses, expires] = JSON.parse(process.env["RECIPROC_SESSION_BOUNDS"] ?? "[1,1,true]") as [
  number,
  number,
  boolean,
];

describe("a session, from its first frame on", () => {
  it("keeps the rules in every state that one message of each end, one lost socket and one expiry can lead to", () => {
    const found = survey({ messages, losses, expires });
    console.log(found);
    expect(found.states).toBeGreaterThan(1000);
  }, 36_000_000);
});
