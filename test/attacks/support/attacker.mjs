/**
 * Sends floods from a process of its own, so that its time is not the server's. Runs commands that arrive as messages,
 * and answers each of them.
 */
import { connect as connectTcp } from "node:net";
import { WebSocket } from "ws";

/** The current flood, if any. */
let flood;
let reading;

const commands = {
  /**
   * Opens connections, and sends `burst` of the texts, in turn, each `everyMs` on each of them. `$i` in a text is a
   * unique number. A connection that is closed is opened again.
   */
  start({ url, protocols = [], first = [], texts = [], burst = 0, everyMs = 5, connections = 1, reads = true }) {
    flood = { url, protocols, first, texts, burst, reads, lines: new Set(), isOn: true, sent: 0, count: 0 };
    flood.answers = {};
    flood.closes = {};
    const { promise, resolve } = withResolvers();
    flood.opened = 0;
    flood.onOpen = () => ++flood.opened === connections && resolve();
    for (let i = 0; i < connections; i++) open(flood);
    flood.timer = setInterval(() => tick(flood), everyMs);
    return promise;
  },

  /** Sends nothing for a while. */
  pause: () => void (flood.isOn = false),
  goOn: () => void (flood.isOn = true),

  /** Ends the flood. Returns its result. */
  stop() {
    clearInterval(flood.timer);
    flood.isOver = true;
    for (const webSocket of flood.lines) webSocket.terminate();
    const { sent, opened, answers, closes } = flood;
    return { sent, opened, answers, closes };
  },

  /**
   * Opens a connection, writes `head` (the handshake) and `first`, and then `chunk` (in base64) again and again, at
   * `bytesPerSecond` while the other side reads. Drops all received bytes. A connection that is closed is opened again.
   */
  pour({ port, head, first, chunk, bytesPerSecond }) {
    flood = { port, bytes: 0, opened: 0, head, bytesPerSecond };
    flood.first = Buffer.from(first, "base64");
    flood.chunk = Buffer.from(chunk, "base64");
    const { promise, resolve } = withResolvers();
    flood.onOpen = resolve;
    pourInto(flood);
    return promise;
  },

  /** Ends the flood of `pour`. Returns how much was written over how many connections. */
  stopPouring() {
    flood.isOver = true;
    flood.socket.destroy();
    const { bytes, opened } = flood;
    return { bytes, opened };
  },

  /** Opens `connections` that only read. Reports when each has `bytes`, or when one has more. */
  async read({ port, connections, text, bytes }) {
    reading = Array.from({ length: connections }, () => readAll(port, text, bytes));
    await Promise.all(reading.map(({ opened }) => opened));
  },
  allRead: () => Promise.all(reading.map(({ over }) => over)),

  /** Opens `count` TCP connections at once, and writes `text` to each. Returns how each was answered and ended. */
  async knock({ port, count: times, text, dribbles = false, hangsUp = false }) {
    const ends = {};
    const one = async () => {
      count(ends, await answerTo(port, text, dribbles, hangsUp));
    };
    await Promise.all(Array.from({ length: times }, one));
    return ends;
  },
};

process.on("message", async ({ command, options }) => {
  try {
    process.send({ result: (await commands[command](options)) ?? null });
  } catch (error) {
    process.send({ failure: error.stack });
  }
});
process.on("disconnect", () => process.exit());

function open(of) {
  const webSocket = new WebSocket(of.url, of.protocols, { perMessageDeflate: false });
  of.lines.add(webSocket);
  webSocket.on("error", () => {});
  webSocket.on("open", () => {
    for (const text of of.first) webSocket.send(text);
    if (!of.reads) webSocket.pause();
    of.onOpen();
  });
  webSocket.on("message", (data) => count(of.answers, kindOf(Buffer.from(data).toString())));
  webSocket.on("close", (code, reason) => {
    of.lines.delete(webSocket);
    if (of.isOver) return;
    count(of.closes, `${code} ${reason}`.trim());
    open(of);
  });
}

function pourInto(of) {
  const socket = (of.socket = connectTcp(of.port, "127.0.0.1"));
  let due = Infinity;
  const pump = () => {
    if (socket.destroyed) return;
    const now = performance.now();
    if (now >= due && socket.writableLength === 0) {
      socket.write(of.chunk);
      of.bytes += of.chunk.length;
      // If the server or this process was late, the missed messages are not sent later.
      due = Math.max(due, now - 50) + (1000 * of.chunk.length) / of.bytesPerSecond;
    }
    setTimeout(pump, 1);
  };
  socket.on("error", () => {});
  socket.on("close", () => of.isOver || setTimeout(() => pourInto(of), 5));
  socket.write(of.head);
  // The response to the handshake, and the server's first frames.
  socket.once("data", () => {
    of.opened++;
    socket.write(of.first);
    due = performance.now();
    socket.resume();
    pump();
    setTimeout(() => of.onOpen(), 50);
  });
}

function tick(of) {
  if (!of.isOn) return;
  for (const webSocket of of.lines) {
    // A queue here would only measure this process.
    if (webSocket.readyState !== WebSocket.OPEN || webSocket.bufferedAmount > 2 ** 20) continue;
    for (let i = 0; i < of.burst; i++) {
      webSocket.send(of.texts[of.sent++ % of.texts.length].replaceAll("$i", () => String(++of.count)));
    }
  }
}

/** Returns the error code of a response, or `result`. */
function kindOf(text) {
  const message = JSON.parse(text);
  const [one] = Array.isArray(message) ? message.flat() : [message];
  if (one?.error !== undefined) return String(one.error.code);
  return one?.result === undefined ? (one?.method ?? Object.keys(message).join()) : "result";
}

function count(counts, name) {
  counts[name] = (counts[name] ?? 0) + 1;
}

/** Returns the status line of a connection's response, or how the connection ended without one. */
function answerTo(port, text, dribbles, hangsUp) {
  return new Promise((resolve) => {
    let answer = "";
    let unsent = text;
    const socket = connectTcp(port, "127.0.0.1");
    const write = () => {
      const length = dribbles ? 1 : unsent.length;
      socket.write(unsent.slice(0, length), "latin1");
      unsent = unsent.slice(length);
      if (unsent === "") clearInterval(timer);
    };
    const timer = setInterval(write, 2);
    socket.on("error", (error) => resolve(error.code));
    socket.on("data", (data) => {
      answer += data;
      // The response to a message follows the response to the handshake.
      if (hangsUp && unsent === "" && answer.includes('"result"')) socket.end();
    });
    socket.on("close", () => {
      clearInterval(timer);
      resolve(summary(answer));
    });
  });
}

/** Counts the bytes after the handshake's head, without storing them. */
function readAll(port, text, bytes) {
  const opened = withResolvers();
  const over = withResolvers();
  let head = "";
  let got = 0;
  const take = (length, buffer) => {
    if (head.endsWith("\r\n\r\n")) got += length;
    else {
      const chunk = buffer.toString("latin1", 0, length);
      const end = chunk.indexOf("\r\n\r\n") + 4;
      head += chunk.slice(0, end === 3 ? length : end);
      if (end > 3) opened.resolve();
      if (end > 3) got += length - end;
    }
    // One byte too many is as wrong as one too few.
    if (got >= bytes) setImmediate(() => over.resolve(got));
    return true;
  };
  const socket = connectTcp({ port, host: "127.0.0.1", onread: { buffer: Buffer.alloc(256 * 1024), callback: take } });
  socket.on("error", () => {});
  socket.on("close", () => over.resolve(got));
  socket.write(text);
  return { opened: opened.promise, over: over.promise };
}

function summary(answer) {
  const [head = "", body = ""] = answer.split("\r\n\r\n");
  const status = head.split("\r\n")[0].split(" ")[1];
  const retryAfter = /^retry-after: (.*)$/im.exec(head)?.[1];
  const bye = /\{"bye":[^}]*\}/.exec(answer)?.[0];
  if (status === undefined) return "nothing";
  return [status, retryAfter && `retry after ${retryAfter}`, bye ?? (status === "101" ? undefined : body.trim())]
    .filter((part) => part)
    .join(", ");
}

function withResolvers() {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
}
