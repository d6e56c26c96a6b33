import { A as Inbox, B as currentTick, C as waitForResponse, D as CONNECT_OPTIONS, Dt as plainText, E as CLOSE_TIMEOUT_MS, Et as optional, H as endPeer, I as atEndOfTick, J as refuseUnknownEvents, M as List, O as EventEmitter$1, Ot as positive, P as Peer$1, Q as setOwnTimer, R as clearOwnTimer, V as customAlphabet, Y as replaceTimers, _ as isTls, _t as exceeds, d as allFeatures, et as tell, f as answerRefusal, ft as bytesOf$1, g as closeWithBye, ht as encodeError$1, it as ErrorCode$1, j as LONGEST_DELAY_MS, jt as shownAs, k as Heartbeat, lt as any, m as checkHost, mt as contract, n as Gate, nt as unlink, ot as RpcError, p as answerUpgradeRequired, pt as checkOptions, q as rateLimit, u as Server, ut as anyFunction, vt as expected, w as withoutUpgrade, wt as must, xt as isPlain, yt as finite, z as connectionOf } from "./assets/server-BmIazXRL.js";
import { EventEmitter, on, once } from "node:events";
import { setTimeout as setTimeout$1 } from "node:timers/promises";
import * as ws from "ws";
import { WebSocket, WebSocketServer } from "ws";
import { Socket } from "node:net";
import { createHash, createHmac, randomBytes, randomFillSync, randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { isUtf8 } from "node:buffer";
import { z } from "zod";
import { createWriteStream, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { rm } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
// ../../dist/chunks/node.js
var LINGER_MS$1 = 1e3;
var queues = /* @__PURE__ */ new Map();
var waiting = 0;
var timer;
var timerDue = Infinity;
var timerSetBy;
var isExact = false;
function shareTimer() {
	const { navigator } = globalThis;
	if (navigator?.userAgent !== "Cloudflare-Workers") replaceTimers(set, clear, count);
}
function set(entry, delayMs) {
	if (entry.before !== void 0 || entry.timer !== void 0) clear(entry);
	if (delayMs === Infinity) return;
	if (timerSetBy !== void 0 && timerSetBy !== setTimeout) leaveClock(timerSetBy);
	const now = performance.now();
	entry.deadline = now + delayMs;
	let queue = queues.get(delayMs);
	if (queue === void 0) queues.set(delayMs, queue = new List());
	queue.add(entry);
	if (waiting === 0) timer?.ref?.();
	waiting++;
	if (entry.deadline < timerDue) arm(Math.min(entry.deadline, now + LINGER_MS$1), now);
}
function clear(entry) {
	if (entry.timer !== void 0) return clearOwnTimer(entry);
	if (!unlink(entry) || --waiting > 0) return;
	if (isExact) disarm();
	else timer?.unref?.();
}
function count() {
	return {
		waiting,
		armed: timer?.hasRef?.() ?? timer !== void 0
	};
}
function arm(due, now) {
	disarm();
	timerDue = due;
	timer = (timerSetBy = setTimeout)(onTimer, Math.min(Math.ceil(due - now), LONGEST_DELAY_MS));
}
function leaveClock(setTimer) {
	const now = performance.now();
	for (const queue of queues.values()) for (const entry of queue.toArray()) {
		unlink(entry);
		setOwnTimer(entry, Math.max(0, entry.deadline - now), setTimer);
	}
	queues.clear();
	waiting = 0;
	disarm();
}
function disarm() {
	clearTimeout(timer);
	timer = void 0;
	timerDue = Infinity;
	timerSetBy = void 0;
	isExact = false;
}
function onTimer() {
	if (waiting === 0 || performance.now() - timerDue < 50) return expireDue();
	timer = setTimeout(expireDue, 0);
}
function expireDue() {
	disarm();
	const now = performance.now();
	for (const [delayMs, queue] of queues) {
		for (let { first } = queue; first !== void 0 && first.deadline <= now; {first} = queue) {
			unlink(first);
			waiting--;
			first.expire();
		}
		if (queue.first === void 0) queues.delete(delayMs);
	}
	if (waiting === 0) return;
	arm(earliest(), now);
	isExact = true;
}
function earliest() {
	let earliestDue = Infinity;
	for (const { first } of queues.values()) if (first !== void 0) earliestDue = Math.min(earliestDue, first.deadline);
	return earliestDue;
}
var MIN_POOLED = 65536;
var MAX_SIZE = 131072;
var MAX_SPARE = 8;
var spare = [];
var pooled = /* @__PURE__ */ new WeakSet();
function borrow(size, raw) {
	if (size > MAX_SIZE || raw === void 0 || !keepsNoBuffer(raw)) return Buffer.allocUnsafe(size);
	return (spare.pop() ?? make()).subarray(0, size);
}
function keepsNoBuffer(raw) {
	return Object.getPrototypeOf(raw) === Socket.prototype && raw.writableLength === 0;
}
function make() {
	const buffer = Buffer.allocUnsafeSlow(MAX_SIZE);
	pooled.add(buffer.buffer);
	return buffer;
}
function giveBack({ buffer }) {
	if (spare.length < MAX_SPARE && pooled.has(buffer)) spare.push(Buffer.from(buffer));
}
var BUDGET_MS = 6;
var QUICK_MS = .02;
var QUICK_MESSAGES = 8;
var NO_WORK = [];
var { setImmediate } = globalThis;
var loopTick = 0;
var isTickScheduled = false;
function currentLoopTick() {
	if (!isTickScheduled) {
		isTickScheduled = true;
		setImmediate(() => {
			isTickScheduled = false;
			loopTick++;
		});
	}
	return loopTick;
}
var ReadBudget = class {
	#socket;
	/** The deferred work, from `#next` on. It begins with `#deferred` parts that the present work has deferred. */
	#queue = NO_WORK;
	#next = 0;
	#deferred = 0;
	/** True if the budget of this tick is spent and the deferred work continues in the next tick. */
	#isSpent = false;
	/** The tick in which the budget was last started, and the time of that start. */
	#tick = -1;
	#since = -6;
	/** Messages until the clock is read again, and its last reading for a message. */
	#untilReading = 1;
	#readAt = 0;
	/** `socket` is paused while work is deferred. Without a socket, only work is deferred. */
	constructor(socket) {
		this.#socket = socket;
	}
	/** True if work is deferred. */
	get hasWork() {
		return this.#queue !== NO_WORK;
	}
	/** Records that data has come. Returns true if it may be processed at once. Otherwise, its work must be passed to `add`. */
	received() {
		const now = performance.now();
		if (this.#socket !== void 0) this.#socket.receivedAt = now;
		return this.#queue === NO_WORK && !this.#isSpentAt(now);
	}
	/** Defers work after all other deferred work. */
	add(work) {
		if (this.#queue === NO_WORK) this.#queue = [work];
		else this.#queue.push(work);
		this.#spend();
	}
	/** Returns true if the budget of this tick is spent. Then the caller gives its remaining work to `defer`. */
	isSpent() {
		if (this.#isSpent) return true;
		if (--this.#untilReading > 0) return false;
		const now = performance.now();
		const isQuick = now - this.#readAt < QUICK_MESSAGES * QUICK_MS;
		this.#untilReading = isQuick ? QUICK_MESSAGES : 1;
		this.#readAt = now;
		return this.#isSpentAt(now);
	}
	/**
	* Runs `rest` in a later tick, before anything that came later. A caller whose callee has deferred a rest defers its own rest
	* after that one.
	*/
	defer(rest) {
		if (this.#queue === NO_WORK) this.#queue = [];
		this.#queue.splice(this.#next + this.#deferred++, 0, rest);
		this.#spend();
	}
	/** Forgets its socket, which has closed: a suspended session keeps the budget, and a socket keeps an unfinished message. */
	forgetSocket() {
		this.#socket = void 0;
	}
	/** Takes over the work that is deferred in the budget of the previous socket. */
	adopt(other) {
		if (!other.hasWork) return;
		const work = [...other.#queue.slice(other.#next), ...this.#queue.slice(this.#next)];
		other.#clear();
		this.#queue = work;
		this.#next = this.#deferred = 0;
		this.#spend();
	}
	/**
	* Returns true if the budget is spent at `now`. Starts a new budget with the first work of a tick, unless the last one is
	* younger than `BUDGET_MS`.
	*/
	#isSpentAt(now) {
		if (this.#isSpent) return true;
		if (now - this.#since < BUDGET_MS) return false;
		if (this.#tick === loopTick) this.#spend();
		else this.#begin(now);
		return this.#isSpent;
	}
	#begin(now) {
		this.#tick = currentLoopTick();
		this.#since = now;
	}
	/** Pauses the socket and continues in the next tick, so that other connections are processed meanwhile. */
	#spend() {
		if (this.#isSpent) return;
		this.#isSpent = true;
		this.#socket?.pauseReading();
		setImmediate(() => this.#runDeferred());
	}
	#runDeferred() {
		const now = performance.now();
		this.#isSpent = false;
		this.#begin(now);
		if (this.#socket !== void 0) this.#socket.receivedAt = now;
		try {
			while (this.#runNext() && !this.#isSpentAt(performance.now()));
		} finally {
			if (this.#next >= this.#queue.length) this.#clear();
			if (this.hasWork) this.#spend();
			else if (!this.#isSpent) this.#socket?.resumeReading();
		}
	}
	/** Runs the next work, or reads more if there is none. Returns false if there is nothing to read either. */
	#runNext() {
		if (this.#next >= this.#queue.length) {
			this.#clear();
			return this.#socket?.readPart() === true;
		}
		this.#deferred = 0;
		this.#queue[this.#next++]();
		return true;
	}
	#clear() {
		this.#queue = NO_WORK;
		this.#next = this.#deferred = 0;
	}
};
var MAX_MARKS = 1024;
var MIN_INTERVAL_MS = 5;
var MAX_PINGS = 16;
var LOST_MS = 1e3;
var ReadMarks = class {
	#ping;
	#waiting = [];
	#lastSet = 0;
	/** The mark of the latest ping, and the time when it was sent. */
	#pinged = 0;
	#pingedAt = -1e3;
	/** The marks of the unanswered pings, in order. */
	#unanswered = [];
	#timer;
	/** `ping` sends a ping after all earlier frames. */
	constructor(ping) {
		this.#ping = ping;
	}
	/** Sets a mark: calls `then` when the other side has read all frames sent so far. Returns false if too many marks wait. */
	set(then) {
		if (this.#waiting.length === MAX_MARKS) return false;
		this.#waiting.push(then);
		this.#lastSet++;
		this.#pingIfDue();
		return true;
	}
	/**
	* Takes the payload of a pong. A pong may answer several pings, with the payload of the latest (RFC 6455, section 5.5.3).
	* Returns true if a mark waited for the pong.
	*/
	reached(payload) {
		const mark = Number(payload);
		if (mark > this.#pinged) return false;
		const before = this.#waiting.length;
		while (this.#waiting.length > 0 && this.#lastSet - this.#waiting.length < mark) this.#waiting.shift()();
		if (this.#waiting.length === before) return false;
		this.#unanswered = this.#unanswered.filter((one) => one > mark);
		this.#pingIfDue();
		return true;
	}
	/** Sends a ping for the marks without one, at once or when `MIN_INTERVAL_MS` have passed. */
	#pingIfDue() {
		if (this.#timer !== void 0 || this.#pinged === this.#lastSet) return;
		const now = performance.now();
		if (now - this.#pingedAt > LOST_MS) this.#unanswered = [];
		if (this.#unanswered.length === MAX_PINGS) return;
		const waitMs = this.#pingedAt + MIN_INTERVAL_MS - now;
		if (waitMs > 0) {
			this.#timer = setTimeout(() => {
				this.#timer = void 0;
				this.#pingIfDue();
			}, waitMs);
			this.#timer.unref();
			return;
		}
		this.#pinged = this.#lastSet;
		this.#pingedAt = now;
		this.#unanswered.push(this.#pinged);
		this.#ping(String(this.#pinged));
	}
};
var TEXT$1 = 129;
var BINARY = 130;
var MASKED = 128;
var KEY_BYTES = 4;
var MAX_STRING_LENGTH = 16384;
var FEW_BYTES = 64;
function unmaskedFrames(texts, raw) {
	let frames = "";
	for (const text of texts) {
		const { length } = text;
		if (frames.length + length > MAX_STRING_LENGTH || Buffer.byteLength(text) !== length) return bytesOf(texts, false, raw);
		frames += length < 126 ? "" + String.fromCharCode(length) : `~${uint16String(length)}`;
		frames += text;
	}
	return frames;
}
function uint16String(length) {
	return String.fromCharCode(length >> 8, length & 255);
}
function maskedFrames(contents, raw) {
	return bytesOf(contents, true, raw);
}
function unmaskedFrame(text) {
	return bytesOf([text], false);
}
function binaryHeader(length) {
	const header = Buffer.allocUnsafe(headerBytes(length));
	writeHeader(header, 0, BINARY, length, 0);
	return header;
}
function bytesOf(contents, isMasked, raw) {
	const keyBytes = isMasked ? KEY_BYTES : 0;
	const lengths = [];
	let size = 0;
	for (const content of contents) {
		const length = typeof content === "string" ? Buffer.byteLength(content) : content.length;
		lengths.push(length);
		size += headerBytes(length) + keyBytes + length;
	}
	const bytes = size < MIN_POOLED ? Buffer.allocUnsafe(size) : borrow(size, raw);
	let at = 0;
	for (let i = 0; i < contents.length; i++) {
		const content = contents[i];
		const length = lengths[i];
		const isText = typeof content === "string";
		at = writeHeader(bytes, at, isText ? TEXT$1 : BINARY, length, isMasked ? MASKED : 0) + keyBytes;
		if (isText) bytes.write(content, at, length === content.length ? "latin1" : "utf8");
		else bytes.set(content, at);
		if (isMasked) mask(bytes, at, at + length);
		at += length;
	}
	return bytes;
}
function headerBytes(length) {
	if (length < 126) return 2;
	return length < 65536 ? 4 : 10;
}
function writeHeader(bytes, at, type, length, flag) {
	bytes[at] = type;
	if (length < 126) {
		bytes[at + 1] = flag | length;
		return at + 2;
	}
	if (length < 65536) {
		bytes[at + 1] = flag | 126;
		return bytes.writeUInt16BE(length, at + 2);
	}
	bytes[at + 1] = flag | 127;
	return bytes.writeBigUInt64BE(BigInt(length), at + 2);
}
function mask(bytes, start, end) {
	const key = start - KEY_BYTES;
	writeKey(bytes, key);
	let at = start;
	if (end - start > FEW_BYTES) {
		for (; (bytes.byteOffset + at) % KEY_BYTES !== 0; at++) bytes[at] ^= bytes[key + (at - start & 3)];
		const words = new Int32Array(bytes.buffer, bytes.byteOffset + at, end - at >> 2);
		for (let i = 0; i < KEY_BYTES; i++) rotated[i] = bytes[key + (at - start + i & 3)];
		const word = asWord[0];
		for (let i = 0; i < words.length; i++) words[i] ^= word;
		at += words.byteLength;
	}
	for (; at < end; at++) bytes[at] ^= bytes[key + (at - start & 3)];
}
var rotated = new Uint8Array(KEY_BYTES);
var asWord = new Int32Array(rotated.buffer);
var keys = new Uint8Array(2048 * KEY_BYTES);
var keysUsed = keys.length;
function writeKey(bytes, at) {
	if (keysUsed === keys.length) {
		randomFillSync(keys);
		keysUsed = 0;
	}
	for (let i = 0; i < KEY_BYTES; i++) bytes[at + i] = keys[keysUsed++];
}
shareTimer();
var CONTROL_FRAMES_PER_SECOND = 1e3;
var FLOODED_MS = 1e3;
var PART_BYTES = 16384;
var PART_FRAMES = 64;
var writesToSockets = typeof ws.Sender?.frame === "function";
function pieceLimits(maxFrameBytes) {
	return {
		maxFragments: pieces(maxFrameBytes, 1024),
		maxBufferedChunks: pieces(maxFrameBytes, 256)
	};
}
function pieces(bytes, size) {
	return 128 + Math.ceil(bytes / size);
}
var GatheringWebSocket = class extends WebSocket {
	constructor() {
		super(...arguments);
		this.wsSocket = void 0;
	}
	/** Closes after all earlier frames. `ws` also calls this when the other side closes or breaks the protocol. */
	close(code, data) {
		const close = () => {
			this.wsSocket?.flushHandler();
			super.close(code, data);
		};
		if (this.wsSocket === void 0) close();
		else this.wsSocket.closeAfterWork(close);
	}
};
var WsSocket = class WsSocket extends Inbox {
	#webSocket;
	/** The frames of a server are not masked, so their bytes can be shared. */
	#isServer;
	/** The socket to which frames are written. `undefined` if the WebSocket must send them, and before a client is connected. */
	#raw;
	#error;
	/** True if this side has closed the socket. Further frames are ignored. */
	#isClosing;
	/** Length of the newest frame. */
	#frameBytes;
	/** Created with the first control frame. */
	#takeControlFrame;
	/** True if too many control frames came. Nothing more is read. */
	#isFlooded;
	#heartbeat;
	#readMarks;
	/** The unsent bytes when the socket was corked; `undefined` while it is not corked. */
	#unsentAtCork;
	/** The tick of the last broadcast. */
	#broadcastTick;
	/** `raw` is the socket of a server's upgrade. A client gets its socket with the response. */
	constructor(webSocket, maxFrameBytes, raw) {
		super(maxFrameBytes);
		this.receivedAt = performance.now();
		this.budget = new ReadBudget(this);
		this.coalesces = true;
		this.#isClosing = false;
		this.#frameBytes = 0;
		this.#isFlooded = false;
		this.#broadcastTick = -1;
		this.#webSocket = webSocket;
		this.#raw = writesToSockets ? raw : void 0;
		this.#isServer = this.#raw !== void 0;
		if (raw === void 0) webSocket.once("upgrade", ({ socket }) => this.#raw = socket ?? void 0);
		webSocket.wsSocket = this;
		webSocket.on("message", WsSocket.#received);
		webSocket.on("ping", WsSocket.#pinged);
		webSocket.on("pong", WsSocket.#ponged);
		webSocket.on("error", WsSocket.#failed);
		webSocket.on("close", WsSocket.#closed);
	}
	/** Calls `then` when the other side has answered a ping that follows all sent frames. Returns false if it cannot. */
	afterRead(then) {
		if (!this.open) return false;
		this.#readMarks ??= new ReadMarks((payload) => {
			this.flushHandler();
			if (this.open) this.#webSocket.ping(payload);
		});
		return this.#readMarks.set(then);
	}
	/** Takes a text or binary frame. If the budget of this tick is spent, processes it in a later tick. */
	static #received(data, isBinary) {
		const socket = this.wsSocket;
		const bytes = data;
		const isFree = socket.budget.received();
		socket.#frameBytes = bytes.length;
		if (socket.#isClosing) return;
		if (isFree) socket.receiveFrame(isBinary ? bytes : bytes.toString(), bytes.length);
		else socket.budget.add(() => socket.receiveFrame(isBinary ? bytes : bytes.toString(), bytes.length));
	}
	/** Takes a pong. A pong that answers a read mark was requested, so it does not count towards a flood. */
	static #ponged(payload) {
		const socket = this.wsSocket;
		if (socket.#readMarks?.reached(payload.toString()) === true) socket.budget.received();
		else socket.#controlled();
	}
	/** Answers a ping, unless `ROOM_FOR_PONGS` is used up. Without this bound, unsent pongs to a client would grow without limit. */
	static #pinged(data) {
		const socket = this.wsSocket;
		socket.#controlled();
		if (socket.#isClosing) return;
		if (socket.budget.hasWork) socket.budget.add(() => socket.#pong(data));
		else socket.#pong(data);
	}
	/** Records an error. `close` always follows. */
	static #failed(cause) {
		this.wsSocket.#error ??= cause;
	}
	static #closed(code, reason) {
		const socket = this.wsSocket;
		socket.#heartbeat?.stop();
		socket.budget.forgetSocket();
		const end = () => socket.end({
			code: failureCode(socket.#error) ?? code,
			reason: reason.toString(),
			error: socket.#error
		});
		if (socket.budget.hasWork) socket.budget.add(end);
		else end();
	}
	#pong(data) {
		if (!this.open || this.unsentBytes >= 65536) return;
		this.#corkTick();
		this.#webSocket.pong(data);
	}
	/**
	* Corks the socket until the end of the tick, so that all its frames leave in one system call. 1,000 separate pongs took 30 ms.
	* Frames of this tick do not count as unsent, up to 8 KiB.
	*/
	#corkTick() {
		const raw = this.#raw;
		if (raw === void 0) return;
		if (this.#unsentAtCork !== void 0 && raw.writableLength >= 8192) this.#uncork();
		if (this.#unsentAtCork !== void 0) return;
		this.#unsentAtCork = this.unsentBytes;
		raw.cork();
		atEndOfTick(() => this.#uncork());
	}
	#uncork() {
		if (this.#unsentAtCork === void 0) return;
		this.#unsentAtCork = void 0;
		this.#raw.uncork();
	}
	/** Counts a ping or a pong. If there are too many, closes the socket and stops reading. */
	#controlled() {
		this.budget.received();
		if (this.#isFlooded || (this.#takeControlFrame ??= rateLimit(CONTROL_FRAMES_PER_SECOND))()) return;
		const reason = `more than ${CONTROL_FRAMES_PER_SECOND} pings and pongs in a second`;
		this.#error ??= Object.assign(new Error(reason), { code: FLOODED });
		this.close(1008, reason);
		this.#isFlooded = true;
		this.pauseReading();
		setTimeout(() => this.#webSocket.terminate(), FLOODED_MS).unref();
	}
	/** Delivers the queued items in as many ticks as the budget needs, which defers what comes meanwhile. */
	deliver(items) {
		for (let i = 0; i < items.length; i++) {
			if (i > 0 && this.budget.isSpent()) return this.budget.defer(() => this.deliver(items.slice(i)));
			super.deliver([items[i]]);
		}
	}
	pauseReading() {
		this.#webSocket.pause();
	}
	resumeReading() {
		if (!this.#isFlooded) this.#webSocket.resume();
	}
	/** Parses a part of the buffered data. `ws` takes 10 ms for a read of 64 KiB with 10,000 frames, so parts keep to the budget. */
	readPart() {
		if (this.#isFlooded || this.#raw === void 0) return false;
		const length = Math.min(this.#raw.readableLength, Math.max(PART_BYTES, PART_FRAMES * this.#frameBytes));
		return length > 0 && this.#raw.read(length) !== null;
	}
	/** Calls `close` when all frames that came before the other side's close are processed, and their replies are sent. */
	closeAfterWork(close) {
		if (this.budget.hasWork && !this.#isClosing) this.budget.add(close);
		else close();
	}
	/** Starts a heartbeat, which runs until the socket is closed. */
	watch(times) {
		this.#heartbeat = new Heartbeat(this, times);
	}
	get open() {
		return this.#webSocket.readyState === this.#webSocket.OPEN;
	}
	get unsentBytes() {
		return this.#unsentAtCork ?? this.#webSocket.bufferedAmount;
	}
	send(...frames) {
		if (!this.open) return false;
		const raw = this.#raw;
		if (raw === void 0) {
			for (const frame of frames) this.#webSocket.send(frame);
			return true;
		}
		const first = frames[0];
		if (first instanceof Uint8Array) {
			this.#corkTick();
			if (this.#isServer) {
				raw.write(binaryHeader(first.length));
				raw.write(first);
				return true;
			}
		}
		const bytes = this.#isServer ? unmaskedFrames(frames, raw) : maskedFrames(frames, raw);
		if (typeof bytes === "string") raw.write(bytes, "latin1");
		else raw.write(bytes, bytes.length < MIN_POOLED ? void 0 : (error) => void (error || giveBack(bytes)));
		return true;
	}
	/** Writes the first broadcast of a tick at once. Further ones leave in one system call: 20 for each of 300 sockets were 3 times as fast. */
	sendEncoded(frame) {
		const { content } = frame;
		if (!this.#isServer || typeof content !== "string") return this.send(content);
		if (!this.open) return false;
		const tick = currentTick();
		if (this.#broadcastTick === tick) this.#corkTick();
		this.#broadcastTick = tick;
		this.#raw.write(frame.bytes ??= unmaskedFrame(content));
		return true;
	}
	/** Sends a ping (RFC 6455, section 5.5.2). */
	ping() {
		if (this.open) this.#webSocket.ping();
	}
	/** Cuts the connection without a close frame. */
	dropSocket(reason) {
		this.#error ??= new Error(reason);
		this.#webSocket.terminate();
	}
	/** Bytes received and sent, headers included. `undefined` before the connection is open. */
	get traffic() {
		const { bytesRead: received, bytesWritten = 0, writableLength = 0 } = this.#raw ?? {};
		return received === void 0 ? void 0 : {
			received,
			sent: bytesWritten - writableLength
		};
	}
	close(code = 1e3, reason = "") {
		this.#isClosing = true;
		this.#webSocket.close(code, reason);
		if (this.#raw === void 0) this.limitClose();
	}
};
var FLOODED = "WS_ERR_TOO_MANY_CONTROL_FRAMES";
var FAILURE_CODES = {
	[FLOODED]: 1008,
	WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: 1009,
	WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
	WS_ERR_TOO_MANY_BUFFERED_PARTS: 1008,
	WS_ERR_INVALID_UTF8: 1007
};
function failureCode(error) {
	if (!error?.code?.startsWith("WS_ERR_")) return void 0;
	return FAILURE_CODES[error.code] ?? 1002;
}
var attached = /* @__PURE__ */ new WeakMap();
var latestResponse = /* @__PURE__ */ new WeakMap();
var HttpGate = class extends Gate {
	#parts;
	#upgrader;
	#http;
	#hasWarned = false;
	constructor(settings, delegate, parts) {
		super(settings, delegate);
		this.#parts = parts;
		this.#upgrader = new WebSocketServer({
			noServer: true,
			clientTracking: false,
			WebSocket: GatheringWebSocket,
			perMessageDeflate: false,
			maxPayload: delegate.maxFrameBytes,
			...pieceLimits(delegate.maxFrameBytes),
			closeTimeout: CLOSE_TIMEOUT_MS,
			autoPong: parts.answersPings !== true,
			handleProtocols: (offered) => delegate.chooseProtocol(offered) ?? false
		});
		const { server, port, limits: limits2 } = settings;
		this.#http = server ?? (port === void 0 ? void 0 : makeHttp(limits2.handshakeTimeoutMs));
		if (this.#http !== void 0) this.#attach(this.#http);
	}
	get url() {
		const address = this.#http?.address();
		if (!address || typeof address === "string") return "";
		return `${"setSecureContext" in this.#http ? "wss" : "ws"}://${hostInUrl(address)}:${address.port}${this.settings.path ?? "/"}`;
	}
	listen() {
		const { port, host, server } = this.settings;
		const http = this.#http;
		if (http === void 0 || server !== void 0) return Promise.resolve();
		return new Promise((resolve, reject) => {
			http.once("error", reject);
			http.listen(port, host, () => {
				http.off("error", reject);
				http.on("error", (error) => this.delegate.failed(error));
				resolve();
			});
		});
	}
	/**
	* Shuts the gate, waits until the delegate has closed every connection, and detaches from the HTTP server. Stops the HTTP
	* server if the gate made it. Never rejects.
	*/
	async close() {
		await super.close();
		const http = this.#http;
		if (http === void 0) return;
		this.#detach(http);
		if (this.settings.server !== void 0 || !http.listening) return;
		const closed = new Promise((resolve) => http.close(resolve));
		http.closeAllConnections();
		await closed;
	}
	open(request, raw, head, use) {
		this.#upgrade(request, raw, head, (webSocket) => use(this.#parts.socketOf(webSocket, raw), webSocket.protocol));
	}
	answer(raw, refusal) {
		answerRefusal(raw, refusal);
	}
	refuseWithBye(request, raw, head, refusal) {
		this.#upgrade(request, raw, head, (webSocket) => refuseWithBye(webSocket, refusal));
	}
	#upgrade(request, raw, head, use) {
		raw.cork();
		try {
			this.#upgrader.handleUpgrade(request, raw, head, use);
		} finally {
			raw.uncork();
		}
	}
	#onUpgrade = (request, socket, head) => {
		if (this.#hasOnlyGates("upgrade")) {
			if (!this.#isResponsible(request)) return;
			if (request.method === "POST") this.#reparse(request, socket, head);
			else this.handleUpgrade(request, socket, head);
			return;
		}
		if (this.settings.path === void 0) this.#warnOfListener();
		if (this.servesPath(request)) return this.handleUpgrade(request, socket, head);
		socket.on("error", ignore);
	};
	/** Warns once that this gate and another listener take the same upgrades. */
	#warnOfListener() {
		if (this.#hasWarned) return;
		this.#hasWarned = true;
		process.emitWarning(SHARED_UPGRADES, "reciproc");
	}
	/** Ignores requests while another listener is attached. That listener answers all requests, or passes them to `handleRequest`. */
	#onRequest = (request, response) => {
		latestResponse.set(request.socket, response);
		if (!this.#hasOnlyGates("request") || !this.#isResponsible(request)) return;
		if (this.#parts.request !== void 0) this.#parts.request(request, response);
		else answerUpgradeRequired(response);
	};
	/** Returns true if only gates listen to the HTTP server. */
	#hasOnlyGates(event) {
		return this.#http.listenerCount(event) === attached.get(this.#http).size;
	}
	/** Returns true if this gate answers the request: the gate with its path does, or else the first gate. */
	#isResponsible(request) {
		const gates = [...attached.get(this.#http)];
		return (gates.find((gate) => gate.servesPath(request)) ?? gates[0]) === this;
	}
	/**
	* Passes the connection of a POST to Node again, without the offer to upgrade. A server may ignore the offer (RFC 9110, section
	* 7.8), but Node emits no "request" for it. Java's client offers HTTP/2 with its requests. Requests that are pipelined behind
	* the POST stay on the connection, and are read after it.
	*/
	#reparse(request, socket, head) {
		const response = latestResponse.get(socket);
		if (response !== void 0 && !response.writableFinished) {
			const again = (all) => this.#reparse(request, socket, all);
			return waitForResponse(response, socket, head, this.delegate.maxFrameBytes, again);
		}
		if (socket.writableEnded) return;
		socket.unshift(head);
		socket.unshift(withoutUpgrade(request));
		this.#http.emit(isTls(request) ? "secureConnection" : "connection", socket);
		socket.resume();
	}
	#attach(http) {
		const gates = attached.get(http) ?? /* @__PURE__ */ new Set();
		const { path } = this.settings;
		for (const gate of gates) {
			const other = gate.settings;
			if (other.path !== void 0 && path !== void 0 && other.path !== path) continue;
			throw new TypeError(`This HTTP server has a server at \`path\` "${other.path ?? "(any)"}" already, got "${path ?? "(any)"}"`);
		}
		attached.set(http, gates.add(this));
		http.on("upgrade", this.#onUpgrade);
		http.on("request", this.#onRequest);
	}
	#detach(http) {
		attached.get(http).delete(this);
		http.off("upgrade", this.#onUpgrade);
		http.off("request", this.#onRequest);
	}
};
var SHARED_UPGRADES = "The HTTP server has another listener for `upgrade`, and this server takes the upgrades of every path: give `path`";
var BYE_MAX_FRAMES = 100;
function refuseWithBye(webSocket, refusal) {
	webSocket.on("error", ignore);
	let frames = 0;
	const count2 = () => {
		if (++frames === BYE_MAX_FRAMES) webSocket.pause();
	};
	webSocket.on("message", count2).on("ping", count2).on("pong", count2);
	closeWithBye(webSocket, refusal);
}
function makeHttp(timeoutMs) {
	return createServer({
		headersTimeout: timeLimit(timeoutMs),
		requestTimeout: timeLimit(timeoutMs * 2),
		connectionsCheckingInterval: Math.min(timeoutMs, 1e3),
		keepAliveTimeout: 5e3
	});
}
function timeLimit(ms) {
	return ms === Infinity ? 0 : Math.min(ms, LONGEST_DELAY_MS);
}
function hostInUrl({ address, family }) {
	if (address === "0.0.0.0" || address === "::") return "localhost";
	return family === "IPv6" ? `[${address}]` : address;
}
function ignore() {}
var LINGER_MS = 1e3;
var MAX_PIPELINED = 100;
var MAX_PARTS = 1024;
function beginExchange(request, response) {
	const { socket } = request;
	if (stateOf(socket).whenClosed.size < MAX_PIPELINED) return new Exchange(request, response);
	socket.destroy();
}
var Exchange = class {
	#response;
	#state;
	/** Length of the response, in bytes. */
	#length = 0;
	#isAnswered = false;
	#isClosed = false;
	constructor(request, response) {
		this.request = request;
		this.#response = response;
		this.#state = stateOf(request.socket);
		this.closed = new Promise((resolve) => {
			const end = () => {
				this.#state.whenClosed.delete(end);
				if (!this.#isClosed) this.#state.unsentBytes -= this.#length;
				this.#isClosed = true;
				resolve();
			};
			this.#state.whenClosed.add(end);
			response.once("close", end);
			if (request.socket.destroyed) end();
		});
	}
	/** True if the response was given here. */
	get isAnswered() {
		return this.#isAnswered;
	}
	/** True if the response was given, here or by the application, or if the client has disconnected. */
	get isDone() {
		return this.#isAnswered || this.#isClosed || this.#response.headersSent;
	}
	/** Lets pages of that origin read the response. Overrides a header that the application has set. */
	allow(origin) {
		this.#response.setHeader("Access-Control-Allow-Origin", origin);
		this.#response.appendHeader("Vary", "Origin");
	}
	/** Unsent bytes of all responses on this connection, pipelined ones included. */
	get unsentBytes() {
		return this.#state.unsentBytes;
	}
	/** Bounds how long the requests of this connection are processed in one tick. */
	get budget() {
		return this.#state.budget;
	}
	/** Runs `work` at once, or in a later tick if earlier requests have spent the budget of the connection. */
	runInBudget(work) {
		const { budget } = this.#state;
		if (budget.received()) return work();
		return new Promise((resolve) => budget.add(() => resolve(work())));
	}
	/** Answers, and keeps the connection open. */
	answer(status, headers, body) {
		if (this.#begin(status, headers, body)) this.#response.end(body);
	}
	/** Answers, and closes the connection. */
	refuse(status, headers, body) {
		if (!this.#begin(status, {
			Connection: "close",
			...headers
		}, body)) return;
		if (this.request.complete) this.#response.end(body);
		else this.#linger(body);
	}
	/** Cuts the connection. */
	cut() {
		this.request.socket.destroy();
	}
	/** Returns the body, of at most `maxBytes` and within `timeoutMs`, or why it cannot be read. */
	async read(maxBytes, timeoutMs) {
		const { readableDidRead, readableEnded, body } = this.request;
		if (!readableDidRead && !readableEnded) return readBody(this.request, maxBytes, timeoutMs);
		const given = bodyOf(body);
		return typeof given === "object" && "text" in given && exceeds(given.text, maxBytes) ? "too large" : given;
	}
	#begin(status, headers, body) {
		if (this.isDone) return false;
		this.#isAnswered = true;
		this.#length = body === void 0 ? 0 : Buffer.byteLength(body);
		this.#state.unsentBytes += this.#length;
		this.#response.writeHead(status, {
			...headers,
			...body !== void 0 && { "Content-Length": this.#length }
		});
		return true;
	}
	/**
	* Answers, and drops the rest of the body before closing. Closing while data comes in would make the system reset the
	* connection, and the client might never read the answer.
	*/
	#linger(body) {
		const { request } = this;
		const end = () => {
			clearTimeout(timer2);
			this.#response.end();
		};
		const timer2 = setTimeout(end, LINGER_MS);
		timer2.unref();
		this.#response.write(body);
		request.once("end", end);
		this.closed.then(end);
		request.resume();
	}
};
function bodyOf(parsed) {
	if (parsed === void 0) return "lost";
	if (parsed instanceof Uint8Array) return textOf$1(Buffer.from(parsed));
	return typeof parsed === "string" ? { text: parsed } : { value: parsed };
}
function textOf$1(bytes) {
	return { text: isUtf8(bytes) ? bytes.toString() : "" };
}
function readBody(request, maxBytes, timeoutMs) {
	return new Promise((resolve) => {
		const chunks = [];
		let joined = 0;
		let bytes = 0;
		const end = (body) => {
			clearTimeout(timer2);
			request.off("data", take);
			resolve(body);
		};
		const take = (chunk) => {
			const part = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
			bytes += part.length;
			if (bytes > maxBytes) return end("too large");
			chunks.push(part);
			if (chunks.length - joined >= MAX_PARTS) chunks.push(Buffer.concat(chunks.splice(joined++)));
		};
		const timer2 = timeoutMs === Infinity ? void 0 : setTimeout(end, Math.min(timeoutMs, LONGEST_DELAY_MS), "too late");
		timer2?.unref();
		request.on("data", take);
		request.once("end", () => end(textOf$1(Buffer.concat(chunks))));
		request.once("close", () => end("lost"));
	});
}
var states = /* @__PURE__ */ new WeakMap();
function stateOf(socket) {
	const known = states.get(socket);
	if (known !== void 0) return known;
	const state = {
		whenClosed: /* @__PURE__ */ new Set(),
		unsentBytes: 0,
		budget: new ReadBudget()
	};
	states.set(socket, state);
	socket.once("close", () => {
		for (const end of state.whenClosed) end();
	});
	return state;
}
var TEXT = { "Content-Type": "text/plain; charset=utf-8" };
var JSON_TEXT = { "Content-Type": "application/json; charset=utf-8" };
var TYPES$1 = /* @__PURE__ */ new Set([
	"application/json",
	"application/json-rpc",
	"application/jsonrequest"
]);
var ALLOW = { Allow: "GET, POST, OPTIONS" };
var EXTRA_HEADERS = {
	405: ALLOW,
	413: JSON_TEXT,
	415: {
		"Accept-Post": [...TYPES$1].join(", "),
		"Accept-Encoding": "identity"
	},
	503: { "Retry-After": "5" }
};
var PREFLIGHT_AGE = "600";
var Posts = class {
	#gate;
	#entrance;
	#options;
	/** The peer of each request that passed the first checks. It is `undefined` until the request runs. */
	#open = /* @__PURE__ */ new Map();
	#onEmpty;
	#running = 0;
	constructor(gate, entrance, options) {
		this.#gate = gate;
		this.#entrance = entrance;
		this.#options = options;
	}
	/** Maximum length of a body, in bytes. */
	get #maxMessageBytes() {
		return this.#options.peer.limits.maxMessageBytes;
	}
	/** Number of requests that have a peer. Their handlers run, or their response has not left. */
	get running() {
		return this.#running;
	}
	/** Answers one request. Resolves when the response has left or the client has disconnected. Never rejects. */
	async handle(request, response, checksPath) {
		if (response.headersSent) return;
		const exchange = beginExchange(request, response);
		if (exchange === void 0) return;
		if ((request.method === "GET" || request.method === "HEAD") && checkHost(request) === void 0) answerUpgradeRequired(response);
		else {
			const refusal = this.#check(exchange, checksPath);
			if (refusal !== void 0) this.#refuse(exchange, refusal);
			else if (request.method === "OPTIONS") answerPreflight(exchange);
			else this.#take(exchange);
		}
		await exchange.closed;
	}
	/** Refuses the requests that do not run yet, and ends every peer. Handlers may run on, without a caller. */
	shut(code, reason) {
		for (const [exchange, peer] of this.#open) if (peer === void 0) this.#refuse(exchange, {
			status: 503,
			reason
		});
		else endPeer(peer, {
			code,
			reason
		});
	}
	/** Resolves when no handler of any request runs, not even of a notification, or after `timeoutMs`. Never rejects. */
	async drain(timeoutMs) {
		if (this.#open.size === 0) return;
		let timer2;
		await new Promise((resolve) => {
			this.#onEmpty = resolve;
			timer2 = setTimeout(resolve, timeoutMs);
		});
		clearTimeout(timer2);
	}
	/** Resolves when every response has left. Cuts clients that do not read their responses within 5 seconds. Never rejects. */
	async close() {
		const open2 = [...this.#open.keys()];
		const cut = setTimeout(() => {
			for (const exchange of open2) exchange.cut();
		}, CLOSE_TIMEOUT_MS);
		await Promise.all(open2.map(({ closed }) => closed));
		clearTimeout(cut);
	}
	/** Checks `Host` and `Origin` first, so that an allowed page may read any other refusal. */
	#check(exchange, checksPath) {
		const { request } = exchange;
		const foreign = this.#gate.checkOrigin(request);
		if (foreign !== void 0) return foreign;
		allowPage(exchange);
		return this.#gate.checkCapacity(request, checksPath, false) ?? checkHead(request, this.#maxMessageBytes);
	}
	async #take(exchange) {
		const { verdict, leave } = this.#gate.enter(exchange.request);
		this.#open.set(exchange, void 0);
		const peer = await this.#admit(exchange, verdict);
		await Promise.all([exchange.closed, peer?.closed]);
		this.#open.delete(exchange);
		if (peer !== void 0) this.#running--;
		leave();
		if (this.#open.size === 0) this.#onEmpty?.();
	}
	/** Returns the peer of the request, or `undefined` if the request is refused or its client has disconnected. */
	async #admit(exchange, verdict) {
		const due = performance.now() + this.#entrance.timeoutMs;
		const decision = await verdict ?? { admission: void 0 };
		if ("refusal" in decision) return this.#refuse(exchange, decision.refusal);
		if (exchange.isDone) return void 0;
		const body = await exchange.read(this.#maxMessageBytes, due - performance.now());
		if (typeof body === "string") return this.#fail(exchange, body);
		return exchange.runInBudget(() => exchange.isDone ? void 0 : this.#run(exchange, body, decision.admission));
	}
	#run(exchange, body, admission) {
		const refusal = this.#entrance.claimSlot(admission);
		if (refusal !== void 0) return this.#refuse(exchange, refusal);
		this.#running++;
		const peer = this.#entrance.acceptPost(transportOf(exchange), admission);
		this.#open.set(exchange, peer);
		answer(exchange, body, connectionOf(peer), this.#options);
		return peer;
	}
	#fail(exchange, failure) {
		if (failure === "too large") return this.#refuse(exchange, tooLarge(this.#maxMessageBytes));
		const reason = `the request took longer than \`limits.handshakeTimeoutMs\`, ${this.#entrance.timeoutMs}`;
		if (failure === "too late") return this.#refuse(exchange, {
			status: 408,
			reason
		});
		if (exchange.isDone) return void 0;
		this.#entrance.failed(/* @__PURE__ */ new Error("a request's body was read before `handleRequest`, and is not in `request.body`"));
		exchange.refuse(500, TEXT, "the request's body is lost\n");
	}
	#refuse(exchange, refusal) {
		if (exchange.isDone) return;
		const { status, reason } = refusal;
		this.#entrance.refused(refusal, exchange.request);
		const body = status === 413 ? tooLargeReply(this.#maxMessageBytes) : `${reason}
`;
		exchange.refuse(status, {
			...TEXT,
			...EXTRA_HEADERS[status]
		}, body);
	}
};
var NO_CALLS = /* @__PURE__ */ new Error("the call came by HTTP POST, so its caller cannot be called back");
function transportOf(exchange) {
	let receiver;
	return {
		budget: exchange.budget,
		start(given) {
			receiver = given;
		},
		send: () => false,
		close(code = 1e3, reason = "") {
			const why = reason === "" ? `closed with ${code}` : reason;
			exchange.refuse(500, TEXT, `${why}; what was called may have run
`);
			receiver.closed({
				code,
				reason
			});
		}
	};
}
function answer(exchange, body, connection, options) {
	const { incoming, outgoing } = connection;
	let isReplied = false;
	const endIfIdle = () => {
		if (isReplied && incoming.running === 0) connection.end({
			code: 1e3,
			reason: ""
		});
	};
	const reply = (text) => {
		if (connection.ended !== void 0) return;
		giveReply(exchange, text, options);
		isReplied = true;
		endIfIdle();
	};
	const slot = {
		reserveBytes: (text) => incoming.reserveBytes(text),
		put(text, onSent) {
			reply(plainText(text));
			onSent?.(connection.ended === void 0);
			return true;
		},
		leaveOut: () => reply(void 0)
	};
	outgoing.whyNoCalls = NO_CALLS;
	incoming.onIdle = endIfIdle;
	exchange.closed.then(() => {
		if (!exchange.isAnswered) connection.closed({
			code: 1006,
			reason: "the client is gone"
		});
	});
	if ("text" in body) connection.receive(body.text, slot);
	else connection.dispatch(body.value, slot);
}
function giveReply(exchange, text, options) {
	const { notificationStatus } = options;
	if (exchange.unsentBytes > options.peer.limits.maxUnsentBytes) exchange.cut();
	else if (text === void 0) exchange.answer(notificationStatus, {}, notificationStatus === 200 ? "" : void 0);
	else exchange.answer(200, JSON_TEXT, text);
}
function allowPage(exchange) {
	const { origin } = exchange.request.headers;
	if (origin !== void 0) exchange.allow(origin);
}
function answerPreflight(exchange) {
	const { "access-control-request-headers": wanted } = exchange.request.headers;
	exchange.answer(204, {
		...ALLOW,
		"Access-Control-Allow-Methods": "POST",
		...wanted !== void 0 && { "Access-Control-Allow-Headers": wanted },
		"Access-Control-Max-Age": PREFLIGHT_AGE
	});
}
function checkHead({ method, headers }, maxMessageBytes) {
	if (method === "OPTIONS") return void 0;
	if (method !== "POST") return {
		status: 405,
		reason: `calls are made by POST, not by ${method}`
	};
	const { "content-type": type = "", "content-encoding": encoding = "identity" } = headers;
	if (!isJson(type)) return {
		status: 415,
		reason: `\`Content-Type\` is "${type}", not "application/json" in UTF-8`
	};
	if (encoding.trim().toLowerCase() !== "identity") return {
		status: 415,
		reason: `\`Content-Encoding\` is "${encoding}", not "identity"`
	};
	return Number(headers["content-length"] ?? 0) > maxMessageBytes ? tooLarge(maxMessageBytes) : void 0;
}
function isJson(contentType) {
	const [type, ...parameters] = contentType.split(";").map((part) => part.trim().toLowerCase());
	return TYPES$1.has(type) && parameters.every((one) => !one.startsWith("charset=") || isUtf8$2(one.slice(8)));
}
function isUtf8$2(charset) {
	return /^("?)utf-?8\1$/.test(charset);
}
function tooLarge(maxMessageBytes) {
	return {
		status: 413,
		reason: `the message is longer than \`limits.maxMessageBytes\`, ${maxMessageBytes}`
	};
}
function tooLargeReply(maxMessageBytes) {
	const { RequestTooLarge: code } = ErrorCode$1;
	return plainText(encodeError$1(null, {
		code,
		message: "Request is too large",
		data: { maxMessageBytes }
	}));
}
async function serve(options) {
	const server = new Server(options, await platformFor(options));
	await server.listen();
	return server;
}
var NODE = {
	hash: (token) => createHash("sha256").update(token).digest("base64"),
	connect(options, entrance) {
		const { maxMessageBytes } = options.peer.limits;
		const gate = new HttpGate(options.gate, entrance, {
			socketOf: (webSocket, raw) => new WsSocket(webSocket, maxMessageBytes, raw),
			answersPings: true,
			request: (request, response) => void posts.handle(request, response, true)
		});
		const posts = new Posts(gate, entrance, options);
		return {
			gate,
			posts
		};
	}
};
async function platformFor(options) {
	if (options?.engine === void 0) return NODE;
	const { Fleet } = await import("./assets/fleet-D9J2lVUx.js").then(function(n) {
		return n.fleet;
	});
	return {
		...NODE,
		makeNode: (engine, host) => new Fleet(engine, host)
	};
}
var ATTACH_OPTIONS = {
	engine: any,
	topics: any,
	nodes: any,
	timeoutMs: any
};
var EVENTS = {
	engine: 0,
	gap: 0,
	error: 0
};
(class Attached extends EventEmitter$1 {
	#server;
	/** Use `attach`. Throws a `TypeError` for bad options. */
	constructor(options, platform) {
		super();
		const checked = checkOptions("options", options, ATTACH_OPTIONS);
		if (checked.engine === void 0) throw expected("engine", "an engine, such as `memory()`", checked.engine);
		const all = {
			...checked,
			noServer: true,
			authenticate: () => null,
			principal: () => ""
		};
		this.#server = new Server(all, platform);
		const report = (error) => void tell(this, "error", [error]);
		this.#server.on("error", report);
		this.#server.on("engine", (state) => void tell(this, "engine", [state], report));
		this.#server.on("gap", (topic, reason) => void tell(this, "gap", [topic, reason], report));
	}
	/** Connects, for `attach`. @internal */
	start() {
		return this.#server.listen();
	}
	/** Returns the topic of that name. Throws a `TypeError` for a name that cannot be a topic. */
	topic(name) {
		return this.#server.topic(name);
	}
	/** As `server.topics(...names)`. */
	topics(...names) {
		return this.#server.topics(...names);
	}
	/** Returns a peer of any node, by its `id`. */
	peer(id) {
		return this.#server.peer(id);
	}
	/** Returns all peers of one principal, on all nodes. */
	principal(name) {
		return this.#server.principal(name);
	}
	/** The nodes that have the same engine, with this one. */
	get nodes() {
		return this.#server.nodes;
	}
	/** As `server.health()`. */
	health() {
		return this.#server.health();
	}
	/** Disconnects. Calls that are pending reject with `ConnectionLostError`. Never rejects. A second call waits for the first. */
	close() {
		return this.#server.close();
	}
	/** Returns `"server"`, for logs. In a message it throws a `TypeError`. */
	toJSON(key) {
		return shownAs("server", "server", "write what is needed of it", key);
	}
	/** Calls `close()`, for `await using`. */
	[Symbol.asyncDispose]() {
		return this.close();
	}
	static {
		refuseUnknownEvents(Attached.prototype, EVENTS);
	}
});
var aCount = must("a whole number from 1", (value) => Number.isSafeInteger(value) && value > 0);
var RATE = {
	calls: aCount,
	perMs: finite
};
var aRate = (value, name) => checkOptions(name, value, RATE);
optional(aRate), optional(aRate), optional(aCount, Infinity), optional(positive, Infinity);
var hexDigits = customAlphabet("123456789abcdef", 32);
must("a string", (value) => typeof value === "string"), optional(anyFunction, () => `0x${hexDigits()}`);
(class Peer extends Peer$1 {
	static {
		this.features = allFeatures;
	}
	static [Symbol.hasInstance](value) {
		return this === Peer ? value instanceof Peer$1 : super[Symbol.hasInstance](value);
	}
});
({ ...CONNECT_OPTIONS }), optional(must("a plain object or a function", (it) => typeof it === "function" || isPlain(it))), optional(must("a plain object", isPlain));
// api.ts
/**
* What the server serves and what a page serves, as schemas of zod. The server checks params with them, and both sides take their
* types from them. A page imports only the types, so it loads neither zod nor the schemas.
*/
var Text = z.string().trim().min(1).max(200);
/** What a page says about a card. The page chooses the id, so it can show the card before the server has it. */
var Draft = z.object({
	id: z.uuid(),
	text: Text,
	isDone: z.boolean()
});
var Card = Draft.extend({ owner: z.string() });
z.object({ name: z.string() });
var Id = z.object({ id: z.string() });
/** What `import` reports in cards, and `upload` in bytes. */
var Progress = z.object({ done: z.number() });
var serverApi = contract({
	people: {
		params: z.object({ presence: z.enum([
			"join",
			"set",
			"leave"
		]) }),
		result: z.custom()
	},
	"cards/join": {
		params: z.object({ since: z.string().optional() }),
		result: z.object({
			at: z.string().optional(),
			outcome: z.enum(["complete", "gap"]).optional(),
			value: z.array(Card).optional()
		})
	},
	"cards/leave": { params: z.object({}) },
	/** Adds a card, or changes it. */
	put: {
		params: Draft,
		result: Card
	},
	/** Removes a card, after its owner was asked. Returns false if the owner says no. */
	remove: {
		params: Id,
		result: z.boolean()
	},
	/** Adds a card for each line, slowly. Returns the number of cards. */
	import: {
		params: z.object({ lines: z.array(Text).max(1e3) }),
		result: z.number(),
		progress: Progress
	},
	/** What users do, from now on. */
	log: { stream: z.string() },
	/** Stores a file. Returns its length. */
	upload: {
		params: z.object({
			name: z.string().max(200),
			content: z.custom()
		}),
		result: z.number(),
		progress: Progress
	}
});
contract({
	people: { params: z.custom() },
	changed: { params: z.object({ card: Card }) },
	removed: { params: Id },
	/** Asks the user. */
	confirm: {
		params: z.object({ question: z.string() }),
		result: z.boolean()
	}
});
// server/store.ts
/** What survives a restart, in one folder: the cards, the key of the cookies, and uploaded files. */
var FOLDER = process.env["BOARD_FOLDER"] ?? "data";
var FILE = join(FOLDER, "board.json");
var UPLOADS = join(FOLDER, "uploads");
mkdirSync(UPLOADS, { recursive: true });
var stored = existsSync(FILE) ? JSON.parse(readFileSync(FILE, "utf8")) : {
	key: randomBytes(32).toString("hex"),
	cards: []
};
var save = () => writeFileSync(FILE, JSON.stringify(stored), { mode: 384 });
save();
var cards = () => stored.cards;
var cardOf = (id) => stored.cards.find((card) => card.id === id);
function putCard(card) {
	const at = stored.cards.findIndex(({ id }) => id === card.id);
	if (at < 0) stored.cards.push(card);
	else stored.cards[at] = card;
	save();
	return card;
}
function removeCard(id) {
	stored.cards = stored.cards.filter((card) => card.id !== id);
	save();
}
/** Stores a file. If its parts end with an error, rejects with it, and stores nothing. */
async function storeUpload(parts) {
	const path = join(UPLOADS, randomUUID());
	try {
		await pipeline(parts, createWriteStream(path));
	} catch (error) {
		await rm(path, { force: true });
		throw error;
	}
}
var signatureOf = (name) => createHmac("sha256", stored.key).update(name).digest("base64url");
/** The cookie that proves a name. */
var cookieOf = (name) => `user=${encodeURIComponent(name)}.${signatureOf(name)}; Path=/; HttpOnly; SameSite=Strict; Max-Age=86400`;
/** Returns the name that the cookie of a request proves, or null. */
function nameIn(cookie) {
	const [, encoded, signature] = /(?:^|; )user=([^.;]+)\.([\w-]+)/.exec(cookie ?? "") ?? [];
	if (encoded === void 0 || signature === void 0) return null;
	const name = decodeURIComponent(encoded);
	const expected = Buffer.from(signatureOf(name));
	const given = Buffer.from(signature);
	return expected.length === given.length && timingSafeEqual(expected, given) ? name : null;
}
// server/http.ts
/** Plain HTTP: the built page, and the login. */
var PAGE = join(process.cwd(), "build/page");
var TYPES = {
	".html": "text/html",
	".js": "text/javascript",
	".css": "text/css"
};
/** The files of the page, by path. Nothing else is served. */
var files = new Map(readdirSync(PAGE, {
	recursive: true,
	withFileTypes: true
}).filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name)).map((path) => [`/${relative(PAGE, path).replaceAll(sep, "/")}`, path]));
/** Listens on a port of this machine. `onLogout` is called with the name of a user who logs out. */
async function startHttp(onLogout) {
	const http = createServer(async (request, response) => {
		const path = new URL(request.url ?? "/", "http://localhost").pathname;
		const name = nameIn(request.headers.cookie);
		switch (`${request.method} ${path}`) {
			case "POST /login": {
				const wanted = await textOf(request);
				if (wanted === void 0) return response.writeHead(400).end();
				return response.writeHead(204, { "Set-Cookie": cookieOf(wanted) }).end();
			}
			case "POST /logout":
				if (name !== null) onLogout(name);
				return response.writeHead(204, { "Set-Cookie": "user=; Path=/; Max-Age=0" }).end();
			case "GET /me": return response.setHeader("Content-Type", "application/json").end(JSON.stringify({ name }));
		}
		const file = files.get(path === "/" ? "/index.html" : path);
		if (file === void 0) return response.writeHead(404).end();
		return response.setHeader("Content-Type", TYPES[extname(file)] ?? "text/plain").end(readFileSync(file));
	});
	http.listen(Number(process.env["PORT"] ?? 3e3), "127.0.0.1");
	await once(http, "listening");
	return http;
}
/** Returns the body of a request; `undefined` if it is empty, or longer than a name. */
async function textOf(request) {
	let text = "";
	for await (const chunk of request) if ((text += chunk).length > 40) return void 0;
	return text.trim() || void 0;
}
// server/main.ts
/** The server of the board. */
var MOST_UPLOADED_BYTES = 5e7;
var lines = new EventEmitter().setMaxListeners(0);
var log = (line) => lines.emit("line", line);
var http = await startHttp(logOut);
var server = await serve({
	server: http,
	path: "/rpc",
	authenticate: ({ headers }) => {
		const name = nameIn(headers.cookie);
		return name === null ? null : { name };
	},
	principal: ({ name }) => name,
	topics: (name) => name === "cards" ? { log: {} } : { members: "people" },
	contract: serverApi,
	methods: {
		people: (params, { peer, server }) => server.topic("people").present(peer, params, { name: peer.auth.name }),
		"cards/join": ({ since }, { peer, server }) => server.topic("cards").join(peer, {
			since,
			load: cards
		}),
		"cards/leave": (_params, { peer, server }) => void server.topic("cards").delete(peer),
		async put(draft, { peer, server }) {
			const card = putCard({
				...draft,
				owner: cardOf(draft.id)?.owner ?? peer.auth.name
			});
			await server.topic("cards").publish("changed", { card });
			log(`${peer.auth.name} wrote "${card.text}"`);
			return card;
		},
		async remove({ id }, { peer, server, signal }) {
			const card = cardOf(id);
			if (card === void 0) throw new RpcError(404, "there is no such card");
			const question = `May ${peer.auth.name} remove "${card.text}"?`;
			if (card.owner !== peer.auth.name && !await ask(card.owner, question, signal)) return false;
			removeCard(id);
			await server.topic("cards").publish("removed", { id });
			log(`${peer.auth.name} removed "${card.text}"`);
			return true;
		},
		async import({ lines: texts }, { peer, server, signal, progress }) {
			for (const [i, text] of texts.entries()) {
				await setTimeout$1(100, void 0, { signal });
				const card = putCard({
					id: crypto.randomUUID(),
					text,
					isDone: false,
					owner: peer.auth.name
				});
				await server.topic("cards").publish("changed", { card });
				progress({ done: i + 1 });
			}
			log(`${peer.auth.name} imported ${texts.length} cards`);
			return texts.length;
		},
		async *log(_params, { signal }) {
			for await (const [line] of on(lines, "line", { signal })) yield line;
		},
		async upload({ name, content }, { peer, progress }) {
			let done = 0;
			async function* parts() {
				for await (const part of peer.iterate(content)) {
					const bytes = bytesOf$1(part);
					done += bytes.length;
					if (done > MOST_UPLOADED_BYTES) throw new RpcError(413, "the file is too long");
					yield bytes;
					progress({ done });
				}
			}
			await storeUpload(parts());
			log(`${peer.auth.name} uploaded ${name}`);
			return done;
		}
	}
});
server.on("error", console.error);
var people = server.topic("people");
people.on("join", ({ auth }) => log(`${auth.name} is here`));
people.on("leave", ({ auth }) => log(`${auth.name} has left`));
var windowsOf = (name) => Array.from(server.peers).filter(({ auth }) => auth.name === name);
/** Asks all windows of a user. The first answer counts, and the other windows are no longer asked. A user who is away agrees. */
async function ask(name, question, signal) {
	const windows = windowsOf(name);
	if (windows.length === 0) return true;
	const answered = new AbortController();
	const options = {
		signal: AbortSignal.any([signal, answered.signal]),
		timeoutMs: 3e4
	};
	try {
		return await Promise.any(windows.map((peer) => peer.request("confirm", { question }, options)));
	} catch {
		return false;
	} finally {
		answered.abort();
	}
}
/** Closes all windows of a user with 4401, after which a page does not reconnect. */
function logOut(name) {
	for (const peer of windowsOf(name)) peer.close(4401);
}
console.log(`board: http://localhost:${http.address().port}`);
await Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
await server.drain({
	timeoutMs: 5e3,
	retryMs: 500
});
http.close();
http.closeAllConnections();
export {};
