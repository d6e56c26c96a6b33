/** Questions and answers between processes, over Node's own channel. */

/** Answers what comes in on `channel` by `commands`. */
export function answer(channel, commands) {
  channel.on("message", async ({ id, command, args }) => {
    try {
      channel.send({ id, value: await commands[command](...args) });
    } catch (error) {
      channel.send({ id, error: error instanceof Error ? error.message : String(error) });
    }
  });
}

/** A function that asks over `channel` and promises the answer. What the other process dies of is the caller's to see. */
export function asker(channel) {
  const pending = new Map();
  let nextId = 1;
  channel.on("message", ({ id, value, error }) => {
    const { resolve, reject } = pending.get(id);
    pending.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  });
  return (command, ...args) =>
    new Promise((resolve, reject) => {
      const id = nextId++;
      pending.set(id, { resolve, reject });
      channel.send({ id, command, args });
    });
}
