import { turn } from "./turns.js";

const EVENTS = ["uncaughtException", "unhandledRejection"] as const;

/** Runs `act` and returns the uncaught exceptions, and the reasons of the rejections that nothing handles. */
export async function uncaughtIn(act: () => unknown): Promise<unknown[]> {
  const caught: unknown[] = [];
  const restore = EVENTS.map((event) => {
    const others = process.listeners(event as "uncaughtException");
    process.removeAllListeners(event);
    process.on(event, (error: unknown) => caught.push(error));
    return () => {
      process.removeAllListeners(event);
      for (const listener of others) process.on(event, listener);
    };
  });
  try {
    await act();
    await turn();
  } finally {
    for (const one of restore) one();
  }
  return caught;
}
