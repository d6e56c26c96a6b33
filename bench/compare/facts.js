/** The columns of the table: each is an experiment on one contender that ends in the text of its cell. */
import { outcome, startProxy, startServer, tell } from "./rig.js";

/** How long a call that should have ended may stay pending before the cell says so. */
const PATIENCE_MS = 2_000;
/** Longer than any default time-out among the contenders, so that "none" is seen and not assumed. */
const TIMEOUT_MS = 65_000;
/** Begins the first cell of those whose frames are not JSON-RPC: the facts marked `wire` cannot be asked of them. */
export const OWN_PROTOCOL = "own protocol";

const request = (id, method) => JSON.stringify({ jsonrpc: "2.0", id, method, params: ["x"] });
const BATCH = `[${request(1, "echo")},${request(2, "echo")}]`;
const BAD_JSON = "{bad json";
const EMPTY_IDS = [0, ""];
const INHERITED = request(7, "toString");

const code = (text) => `\`${text.length > 110 ? `${text.slice(0, 109)}…` : text}\``;
const came = ({ text, instead }) => instead ?? code(text);
const no = (reply) => `no: ${came(reply)}`;

export const facts = [
  {
    title: "speaks plain JSON-RPC 2.0: its frame for `echo`",
    async run(contender) {
      const { call, proxy } = await session(contender);
      const frame = proxy.nextFrame();
      const echoed = await call("echo", "hi");
      if (echoed !== "hi") throw new Error(`echo of "hi" answered ${echoed}`);
      const text = await frame;
      return `${parse(text)?.jsonrpc === "2.0" ? "yes" : OWN_PROTOCOL}: ${code(text)}`;
    },
  },
  {
    title: "server calls client and gets the answer",
    async run(contender) {
      const { call } = await session(contender);
      const { state, value, error } = await outcome(call("ask", "it"), PATIENCE_MS);
      if (state === "pending") return "no: still pending after 2 s";
      return value === "answer to it" ? "yes" : `no: ${code(String(error ?? value))}`;
    },
  },
  {
    title: "pending call, TCP connection cut",
    async run(contender) {
      const { pending, proxy } = await pendingCall(contender);
      proxy.cut();
      return fate(pending, PATIENCE_MS);
    },
  },
  {
    title: "pending call, no options",
    slow: true,
    async run(contender) {
      const { pending } = await pendingCall(contender);
      return fate(pending, TIMEOUT_MS);
    },
  },
  {
    title: "pending call, aborted by an `AbortSignal`",
    async run(contender) {
      const controller = new AbortController();
      const { pending } = await pendingCall(contender, controller.signal);
      controller.abort();
      return fate(pending, PATIENCE_MS);
    },
  },
  {
    title: "a batch of two is answered with an array",
    wire: true,
    async run(contender) {
      const reply = await tell(await startServer(contender), BATCH);
      const answers = parse(reply.text);
      // In any order, as the specification allows.
      const whole =
        Array.isArray(answers) && [1, 2].every((id) => answers.some((it) => it.id === id && it.result === "x"));
      return whole && answers.length === 2 ? "yes" : no(reply);
    },
  },
  {
    title: `\`${BAD_JSON}\` is answered -32700`,
    wire: true,
    run: (contender) => answeredWithError(contender, BAD_JSON, -32700),
  },
  {
    title: 'ids 0 and `""` are answered',
    wire: true,
    async run(contender) {
      const failures = [];
      for (const id of EMPTY_IDS) {
        const reply = await tell(await startServer(contender), request(id, "echo"));
        const { id: answered, result } = parse(reply.text) ?? {};
        if (answered !== id || result !== "x") failures.push(`${came(reply)} for id ${code(JSON.stringify(id))}`);
      }
      return failures.length === 0 ? "yes" : `no: ${failures.join(", ")}`;
    },
  },
  {
    title: "method `toString` is answered -32601",
    wire: true,
    run: (contender) => answeredWithError(contender, INHERITED, -32601),
  },
  {
    title: "the server process survives these frames",
    async run(contender) {
      const server = await startServer(contender);
      for (const frame of [BATCH, BAD_JSON, ...EMPTY_IDS.map((id) => request(id, "echo")), INHERITED]) {
        await tell(server, frame);
        if (!server.alive()) return `no: exits at ${code(frame)}`;
      }
      const { call } = await session(contender, server);
      const { state } = await outcome(call("echo", "hi"), PATIENCE_MS);
      return state === "resolves" ? "yes" : "no: it lives but answers nobody";
    },
  },
];

/** A server, and a client of it that can be watched and cut. */
async function session(contender, server) {
  const { port } = server ?? (await startServer(contender));
  const proxy = await startProxy(port);
  const { connect } = await import(`./adapters/${contender}.js`);
  return { call: await connect(`ws://127.0.0.1:${proxy.port}`), proxy };
}

/** A call of the method that never answers, once its request has left. */
async function pendingCall(contender, signal) {
  const { call, proxy } = await session(contender);
  const left = proxy.nextFrame();
  const pending = call("hang", "x", signal);
  await left;
  return { pending, proxy };
}

async function fate(pending, ms) {
  const started = performance.now();
  const { state } = await outcome(pending, ms);
  if (state === "pending") return `still pending after ${ms / 1_000} s`;
  const seconds = Math.round((performance.now() - started) / 1_000);
  return seconds === 0 ? state : `${state} after ${seconds} s`;
}

async function answeredWithError(contender, frame, expected) {
  const reply = await tell(await startServer(contender), frame);
  return parse(reply.text)?.error?.code === expected ? "yes" : no(reply);
}

/** What a frame holds, `undefined` when there was none or it is not JSON: a client can send anything. */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
