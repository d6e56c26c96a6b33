/** What a client does in another runtime. Each check returns what JSON can carry, for the test to judge. */

const inOrder = (values) => values.length === 500 && values.every((value, i) => value === i);

/** Both sides call each other, many calls at once, and notifications arrive in order. */
async function bothWays({ connect }, { url, link }) {
  const heard = [];
  const peer = await connect(url, { link, methods: { inner: ([x]) => x + 1 } });
  peer.on("notification", (_method, params) => heard.push(params[0]));
  const nested = await peer.request("outer", [41]);
  const echoes = await Promise.all(Array.from({ length: 500 }, (_, i) => peer.request("echo", [i])));
  await peer.request("notify", [500]);
  const long = "é".repeat(100_000);
  const isWhole = (await peer.request("echo", [long]))[0] === long;
  await peer.close(4000, "done");
  const { code, reason } = await peer.closed;
  return { nested, echoes: inOrder(echoes.map(([i]) => i)), heard: inOrder(heard), isWhole, code, reason };
}

/** How a connection that cannot be opened ends. */
async function failingOpen({ connect }, { url }) {
  try {
    await connect(url);
    return "opened";
  } catch (error) {
    return { name: error.name, hasCause: error.cause !== undefined };
  }
}

async function withoutSubprotocol({ connect }, { url }) {
  const peer = await connect(url);
  const result = await peer.request("any", ["echo"]);
  await peer.close();
  return result;
}

/** The server cuts the connection under a call. */
async function lostConnection({ connect }, { url, link }) {
  const peer = await connect(url, { link, reconnect: false, methods: {} });
  const call = peer.request("cut").then(
    () => "answered",
    (error) => error.name,
  );
  const { code } = await peer.closed;
  return { code, call: await call };
}

/** A network that carries nothing any more, when the server has answered so on another one. */
async function deadNetwork({ connect }, { url, link, direct }) {
  const peer = await connect(url, { link, heartbeat: false });
  const other = await connect(direct, { link });
  await other.request("freeze");
  await other.close();
  const call = await peer.request("echo", [], { timeoutMs: 100 }).catch((error) => error.name);
  await peer.close();
  const { code } = await peer.closed;
  return { call, code };
}

async function timeout({ connect }, { url }) {
  const peer = await connect(url);
  const outcome = await peer.request("never", undefined, { timeoutMs: 300 }).catch((error) => error.name);
  await peer.close();
  return outcome;
}

/** A server that does not read: what waits is bounded, and the connection ends. */
async function slowServer({ connect }, { url, link }) {
  const maxUnsentBytes = 2 ** 20;
  const peer = await connect(url, { link, limits: { maxUnsentBytes }, heartbeat: false, reconnect: false });
  await peer.request("pause");
  let mostUnsent = 0;
  let sent = 0;
  for (const text = "x".repeat(2 ** 16); peer.state === "open" && sent < 2000; sent++) {
    peer.notify("n", [text]);
    mostUnsent = Math.max(mostUnsent, peer.stats().unsentBytes);
    if (sent % 4 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return { state: peer.state, mostUnsent };
}

/** A server that does not read until another connection asks for it: everything arrives in the end, in order. */
async function pausedServer({ connect }, { url, link }) {
  const peer = await connect(url, { link, limits: { maxUnsentBytes: 2 ** 26 }, heartbeat: false });
  const other = await connect(url, { link });
  const paused = await peer.request("pause");
  const text = "x".repeat(64 * 1024);
  for (let i = 0; i < 300; i++) peer.notify("count", [i, text]);
  await other.request("resume", [paused]);
  await other.close();
  const counted = await peer.request("counted");
  await peer.close();
  return counted;
}

const CHECKS = {
  bothWays,
  failingOpen,
  withoutSubprotocol,
  lostConnection,
  deadNetwork,
  timeout,
  slowServer,
  pausedServer,
};

/** Runs a check over an entry of the package. Only the limit of the test ends an attempt to connect. */
export function run({ connect }, name, options) {
  return CHECKS[name]({ connect: (url, given) => connect(url, { openTimeoutMs: Infinity, ...given }) }, options);
}
