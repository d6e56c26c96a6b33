/** What the suites of an engine need: a broker for one test, and names that a broker may treat as special. */
import { MAX_TOPIC_BYTES, type Engine } from "../../src/fleet/engine.js";

/** A broker for one test. */
export interface EngineRig {
  /** Returns an engine of this broker, as a process makes it. All engines of the rig have the same prefix. */
  engine(): Engine;
  /** What the broker does not offer. The suite asserts that the engine has no such member. */
  readonly lacks?: readonly ("log" | "roster")[];
  /** Returns what is left in the broker under the prefix, one text for each key and subscription. Logs are not counted. */
  leftovers(): Promise<string[]>;
  /** Removes everything of the prefix, and stops what the rig started. */
  close(): Promise<void>;
}

/** Names that a broker may treat as special, or that two channels could share. */
export const HOSTILE_NAMES = [
  "*",
  ">",
  "a.*",
  "a.>",
  "{",
  "}",
  "{}",
  "{a}",
  "a b",
  "a\tb",
  "a\nb",
  "a\r\nb",
  "a:b",
  "t:a",
  "=2A",
  "%002a",
  "__proto__",
  "[a]",
  "?",
  "\\",
  "a\0b",
  "é",
  "e\u0301",
  "😀",
  "$SYS.a",
  "x".repeat(MAX_TOPIC_BYTES),
  "ß".repeat(MAX_TOPIC_BYTES / 2),
];
