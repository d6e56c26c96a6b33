/** Every state of a session, with the oracle beside it. `RECIPROC_SESSION_BOUNDS`, such as `[2,2,true,true]`, takes it further. */
import { expect, it } from "vitest";
import { survey } from "./survey.js";

const [messages, losses, expires, closes] = JSON.parse(process.env["RECIPROC_SESSION_BOUNDS"] ?? "[1,2,true,true]") as [
  number,
  number,
  boolean,
  boolean,
];
/** For bounds that are given: they may be wide. */
const LONG_MS = 36_000_000;

it(
  `keeps the rules of a session in every state that ${messages} messages of each end, ${losses} lost sockets and ${expires ? "one expiry" : "no expiry"} can lead to, and ${closes ? "one" : "no"} close by the client in them (for 1, 2, one and one: some 56,000 states, up to 25 steps deep, all of them)`,
  { timeout: LONG_MS },
  () => {
    const found = survey({ messages, losses, expires, closes });
    // Not fewer: a survey that stops early proves nothing.
    expect(found.states).toBeGreaterThan(messages + losses < 3 ? 1_000 : 50_000);
    expect(found.depth).toBeGreaterThanOrEqual(messages + losses < 3 ? 14 : 20);
  },
);
