/** Requests and replies between processes, over the IPC channel of Node. */

/** Serves the requests of `channel` with the functions of `commands`. */
export function answer(channel, commands) {
  channel.on("message", async ({ id, command, args }) => {
    try {
      channel.send({ id, value: await commands[command](...args) });
    } catch (error) {
      channel.send({ id, error: error instanceof Error ? error.message : String(error) });
    }
  });
}

/** Returns a function that sends a request over `channel` and promises its reply. The caller watches for the end of the other process. */
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
