import { turn } from "./turns.js";

/** Runs `act` and returns the uncaught exceptions. */
export async function uncaughtIn(act: () => unknown): Promise<unknown[]> {
  const others = process.listeners("uncaughtException");
  const caught: unknown[] = [];
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => caught.push(error));
  try {
    await act();
    await turn();
  } finally {
    process.removeAllListeners("uncaughtException");
    for (const listener of others) process.on("uncaughtException", listener);
  }
  return caught;
}
