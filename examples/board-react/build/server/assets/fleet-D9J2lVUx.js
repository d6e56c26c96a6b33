import { $ as settingsOf, At as secret, Ct as mistake, Dt as plainText, Et as optional, G as onAbort, K as positionOf, L as clearDeadline, M as List, Mt as utf8Bytes, Ot as positive, S as refuseOptions, St as messageJson, T as EngineError, Tt as oneOf, W as nanoid, X as runReporting, Z as setDeadline, a as NodeTopics, at as ProtocolError, b as parsed, bt as isObject, c as RecentEntries, ct as TooLargeError, dt as bytes, gt as encodeNotification$1, h as checkJoin, i as NodeTopic, kt as receivedError, l as Replay, nt as unlink, o as OwnPeers, ot as RpcError, r as NO_PEER, rt as ConnectionLostError, s as PAGE, st as TimeoutError, t as Exclusion, tt as textOf, v as memberOf, wt as must, x as publicationOf, y as notificationIn, z as connectionOf } from "./server-BmIazXRL.js";
// ../../dist/chunks/fleet.js
function shuffled(list) {
	const result = [...list];
	for (let i = result.length - 1; i > 0; i--) {
		const j = Math.floor(Math.random() * (i + 1));
		[result[i], result[j]] = [result[j], result[i]];
	}
	return result;
}
var isText = (value) => typeof value === "string";
var object = secret("an object", isObject);
var text = must("a string", isText);
var secretText = secret("a string", isText);
optional(text), optional(secretText), optional(object), optional(must("1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`", (value) => /^[A-Za-z0-9_-]{1,64}$/.test(value)), "reciproc"), optional(must("a number from 100 to 600,000", (value) => value >= 100 && value <= 6e5)), optional(positive), optional(oneOf(true, false));
var Kind = {
	/** A notification to the peers of a topic, or to all peers: from, except (ids, separated by commas), slow, isVolatile, latest. */
	Notify: "N",
	/**
	* A notification to the peers of several topics or of all, or not to those of some: as `Notify`. The body begins with a line of JSON:
	* the names of the topics, or null for all peers, and those of the topics whose members get nothing. A kind of its own, because a node
	* that does not know it must ignore it.
	*/
	Union: "U",
	/** An entry of a log: epoch, offset. The body is a notification without `at`. */
	Log: "L",
	/** A notification to one peer: from, peer. */
	One: "O",
	/** A member joined a topic, or changed its `as`: from, number, before, id. The body is its `as`. */
	Joined: "j",
	/** A member left a topic: from, number, before, id. */
	Left: "l",
	/** A call to a peer: call, from, peer, timeoutMs, flags. The body is a notification. */
	Call: "q",
	/** The answer to a call: call, from, verdict, outcome. The body is the result or the error. */
	Answer: "a",
	/** A progress report of a call: call, from. The body is the value. */
	Progress: "p",
	/** The caller of a call no longer waits: call, from. */
	Cancel: "c",
	/** Closes a peer, and is answered: call, from, peer, code. The body is the reason, as JSON. */
	Close: "x",
	/** Something for all peers of a principal: question, from, verb, code, principal, ageMs. The body is a notification or a reason. */
	Principal: "u",
	/** The answer: question, from. The body is the ids of the peers, or how many were closed. */
	PeersOf: "r",
	/** A client has discarded a session: from, hash, hasPrincipal, principal. */
	SessionOver: "z",
	/** A notification to the other nodes: from. */
	Nodes: "s",
	/** A node lives, or ends: from, number, leaseMs, note. */
	Beat: "b",
	/** What a node has said last of a topic: from, number of its members, epoch, offset. */
	Digest: "d",
	/** Which members another node has in a topic: from, topic. The body is what the node knows: a node and a number in each line. */
	Question: "k",
	/** The answer: from, topic, number, part, isLast. The body is a list of ids and `as`. An empty part: nothing has changed. */
	Members: "m"
};
function channelOf(principal) {
	return `u:.${Array.from(principal).slice(-127).join("")}`;
}
function isNodeName(name) {
	return /^[A-Za-z0-9_-]{1,64}$/.test(name);
}
var MAX_HEAD_LENGTH = 65536;
function frameOf(kind, fields, body = "") {
	let head = "1" + kind;
	for (const field of fields) head += `	${typeof field === "number" ? field : escapeField(field)}`;
	return `${head}
${body}`;
}
function readFrame(text2) {
	const end = text2.slice(0, MAX_HEAD_LENGTH).indexOf("\n");
	if (end < 2 || text2[0] !== "1") return void 0;
	const [first, ...fields] = text2.slice(1, end).split("	");
	if (first.length !== 1) return void 0;
	return {
		kind: first,
		fields: fields.map(unescapeField),
		body: text2.slice(end + 1)
	};
}
function escapeField(field) {
	return field.replace(/[^!-~]|%/g, (unit) => `%${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
function unescapeField(field) {
	if (!field.includes("%")) return field;
	return field.replace(/%([0-9a-f]{4})/g, (_all, code) => String.fromCharCode(parseInt(code, 16)));
}
var FIRST_MS = 100;
var LAST_MS = 3e3;
var MOST_AT_ONCE$1 = 1e3;
var Repeats = class {
	#broker;
	#most;
	#maxLength;
	/** What ends each wait until a frame is sent again, the oldest first: the frame is sent then, or never again. */
	#waiting = /* @__PURE__ */ new Set();
	#length = 0;
	#isStopped = false;
	/**
	* `most`: how many frames wait. `maxLength`: their length together, in UTF-16 code units. One may have any length. A frame beyond that is
	* dropped.
	*/
	constructor(broker, most, maxLength) {
		this.#broker = broker;
		this.#most = most;
		this.#maxLength = maxLength;
	}
	/**
	* Sends a frame at once, and repeats it for `forMs` until `isReceived` returns true for the number of nodes that have received it:
	* `undefined` from a broker that has taken it and counts none. Never rejects.
	*/
	async send(channel, frameNow, forMs, isReceived) {
		const broker = this.#broker;
		const until = performance.now() + forMs;
		for (let delayMs = FIRST_MS;; delayMs = Math.min(delayMs * 2, LAST_MS)) {
			const frame = frameNow();
			const count = await broker.now(() => broker.connection.send(channel, frame), utf8Bytes(frame)).catch(() => 0);
			if (this.#isStopped || isReceived(count) || performance.now() + delayMs > until) return;
			if (!await this.#wait(delayMs, frame.length)) return;
		}
	}
	/** Resolves with whether a frame of that length is sent again. */
	async #wait(delayMs, length) {
		const { size } = this.#waiting;
		if (size >= this.#most || size > 0 && this.#length + length > this.#maxLength) {
			this.#broker.counts.dropped++;
			return false;
		}
		return new Promise((resolve) => {
			const end = (isAgain) => {
				clearDeadline(timer);
				this.#waiting.delete(end);
				this.#length -= length;
				resolve(isAgain);
			};
			const timer = {
				deadline: 0,
				expire: () => end(true)
			};
			this.#waiting.add(end);
			this.#length += length;
			setDeadline(timer, delayMs);
		});
	}
	/** The connection is restored. */
	up() {
		for (const end of [...this.#waiting].slice(0, MOST_AT_ONCE$1)) end(true);
	}
	/** Sends nothing again any more. */
	stop() {
		this.#isStopped = true;
		for (const end of this.#waiting) end(false);
	}
};
var SHARE = .95;
var CLOSE_MS = 1e4;
var Calls = class {
	#node;
	#calls = /* @__PURE__ */ new Map();
	#lastNumber = 0;
	/** What aborts the calls from other nodes that run here, by node and number. */
	#running = /* @__PURE__ */ new Map();
	constructor(node) {
		this.#node = node;
	}
	async request(id, method, params, options = {}) {
		const node = this.#node;
		const to = node.addressOf(id);
		if (to.node === node.id) return node.own.request(id, method, params, options);
		const settings = settingsOf(options, node.host.settings);
		const flags = `${settings.onProgress === void 0 ? "" : "p"}${settings.resetTimeoutOnProgress ? "r" : ""}`;
		const timeoutMs = settings.timeoutMs === Infinity ? 0 : Math.max(1, Math.floor(settings.timeoutMs * SHARE));
		const body = plainText(encodeNotification$1(method, params));
		return this.#call(to.node, method, settings, Kind.Call, [
			to.localId,
			timeoutMs,
			flags
		], body);
	}
	notify(id, method, params) {
		const node = this.#node;
		const to = node.addressOf(id);
		if (to.node === node.id) return node.own.notify(id, method, params);
		const body = plainText(encodeNotification$1(method, params));
		if (isNodeName(to.node)) node.broker.send(`n:${to.node}`, frameOf(Kind.One, [node.id, to.localId], body));
	}
	async close(id, code, reason) {
		const node = this.#node;
		const to = node.addressOf(id);
		if (to.node === node.id) return node.own.close(id, code, reason);
		const settings = settingsOf({ timeoutMs: CLOSE_MS }, node.host.settings);
		await this.#call(to.node, "close", settings, Kind.Close, [to.localId, code], JSON.stringify(reason));
	}
	#call(node, method, settings, kind, fields, body) {
		const { broker, id: from, nodes } = this.#node;
		return new Promise((resolve, reject) => {
			if (settings.signal?.aborted) throw settings.signal.reason;
			if (this.#node.isClosed) throw new ConnectionLostError(method, "not-sent", CLOSED);
			if (!isNodeName(node)) throw new ConnectionLostError(method, "not-sent", NO_NODE);
			const number = ++this.#lastNumber;
			const frame = frameOf(kind, [
				number,
				from,
				...fields
			], body);
			const expire = () => this.#timeOut(call, settings.timeoutMs);
			const call = {
				deadline: 0,
				expire,
				isWritten: false,
				whenSettled: [],
				number,
				node,
				method,
				settings,
				resolve,
				reject
			};
			this.#calls.set(number, call);
			setDeadline(call, settings.timeoutMs);
			this.#watch(call);
			const size = utf8Bytes(frame);
			const send = async () => {
				const { maxFrameBytes } = broker.facts;
				if (size > maxFrameBytes) throw new TooLargeError(method, size, maxFrameBytes);
				if (!nodes.expects(node, performance.now())) throw new ConnectionLostError(method, "not-sent", NO_NODE);
				call.isWritten = true;
				return broker.connection.send(`n:${node}`, frame);
			};
			if (!broker.isUp) call.whenSettled.push(() => broker.cancel(send));
			broker.run(size, settings.timeoutMs, send).then((count) => {
				const { undercounts = false } = broker.facts;
				if (count === 0 && (!undercounts || settings.timeoutMs === Infinity)) this.#settle(number)?.reject(new ConnectionLostError(method, undercounts ? "unknown" : "not-sent", NO_NODE));
			}, (error) => {
				if (!(error instanceof EngineError)) this.#settle(number)?.reject(error);
				else if (error.outcome === "not-sent") this.#settle(number)?.reject(new ConnectionLostError(method, "not-sent", error));
			});
		});
	}
	#watch(call) {
		const { signal, maxTotalTimeoutMs } = call.settings;
		if (maxTotalTimeoutMs !== Infinity) {
			const total = {
				deadline: 0,
				expire: () => this.#timeOut(call, maxTotalTimeoutMs)
			};
			setDeadline(total, maxTotalTimeoutMs);
			call.whenSettled.push(() => clearDeadline(total));
		}
		if (signal === void 0) return;
		call.whenSettled.push(onAbort(signal, () => this.#giveUp(call, signal.reason)));
	}
	#timeOut(call, afterMs) {
		const { method, isWritten } = call;
		this.#giveUp(call, isWritten ? new TimeoutError(method, afterMs, "unknown") : new ConnectionLostError(method, "not-sent", /* @__PURE__ */ new Error("there was no connection to the broker in time")));
	}
	/** Rejects a call whose caller no longer waits, and cancels it on the node of the peer. */
	#giveUp(call, reason) {
		if (this.#settle(call.number) === void 0) return;
		call.reject(reason);
		const { broker, id } = this.#node;
		if (call.isWritten) broker.send(`n:${call.node}`, frameOf(Kind.Cancel, [call.number, id]));
	}
	#settle(number) {
		const call = this.#calls.get(number);
		if (call === void 0) return void 0;
		this.#calls.delete(number);
		clearDeadline(call);
		for (const settled of call.whenSettled) settled();
		return call;
	}
	/** Rejects the calls to a node that has ended, or that had given this one up: then its answers may be lost, and only a timeout would come. */
	lost(node, hasEnded = true) {
		for (const call of this.#calls.values()) {
			if (call.node !== node || !call.isWritten || !(hasEnded || call.settings.timeoutMs === Infinity)) continue;
			this.#settle(call.number)?.reject(new ConnectionLostError(call.method, "unknown", NO_NODE));
		}
	}
	/** Takes a frame of a call. Returns false for an unknown one. */
	received(frame) {
		const { kind, fields, body } = frame;
		const [numberField, from = "", third = "", fourth = "", fifth = ""] = fields;
		const number = Number(numberField);
		if (!Number.isSafeInteger(number) || from === "") return false;
		if (kind === Kind.Answer) this.#answered(number, from, third, fourth, body);
		else if (kind === Kind.Progress) this.#progressed(number, from, body);
		else if (kind === Kind.Cancel) this.#running.get(`${from}/${number}`)?.abort(/* @__PURE__ */ new Error("the caller cancelled"));
		else if (kind === Kind.Call) this.#serve(number, from, third, Number(fourth), fifth, body);
		else if (kind === Kind.Close) {
			const close = (peer) => peer.close(Number(fourth), textIn(parsed(body)));
			this.#answerWith(number, from, third, () => CLOSE_MS, close);
		} else return false;
		return true;
	}
	#answered(number, from, verdict, outcome, body) {
		const value = parsed(body);
		if (value === void 0) return void this.#node.counts.foreign++;
		if (this.#calls.get(number)?.node !== from) return;
		const call = this.#settle(number);
		if (verdict === "ok") call.resolve(value);
		else call.reject(errorOf(call, verdict, outcome === "not-sent" ? "not-sent" : "unknown", value));
	}
	#progressed(number, from, body) {
		const call = this.#calls.get(number);
		if (call?.node !== from) return;
		if (call.settings.resetTimeoutOnProgress) setDeadline(call, call.settings.timeoutMs);
		runReporting(() => call.settings.onProgress?.(parsed(body)), (error) => this.#node.host.report(error));
	}
	#serve(number, from, localId, timeoutMs, flags, body) {
		const message = notificationIn(body);
		const key = `${from}/${number}`;
		if (message === void 0 || this.#running.has(key)) return void this.#node.counts.foreign++;
		const controller = new AbortController();
		const { broker, id } = this.#node;
		const answerMs = timeoutMs > 0 ? timeoutMs / SHARE : Infinity;
		let startedAt = performance.now();
		const onProgress = (value) => {
			if (flags.includes("r")) startedAt = performance.now();
			broker.send(`n:${from}`, frameOf(Kind.Progress, [number, id], encoded(value)));
		};
		const request = (peer) => {
			this.#running.set(key, controller);
			return connectionOf(peer).outgoing.request(message.method, message.params, {
				timeoutMs: timeoutMs > 0 ? timeoutMs : Infinity,
				signal: controller.signal,
				...flags.includes("p") && { onProgress },
				resetTimeoutOnProgress: flags.includes("r")
			}).finally(() => this.#running.delete(key));
		};
		const leftMs = () => Math.max(answerMs - (performance.now() - startedAt), FIRST_MS);
		this.#answerWith(number, from, localId, leftMs, request);
	}
	/** Answers with what a peer of this node does. `forMs`: as of `#answer`. */
	async #answerWith(number, from, localId, forMs, run) {
		const peer = this.#node.peerAt(localId);
		let verdict = [
			"lost",
			"not-sent",
			"null"
		];
		try {
			if (peer !== void 0) verdict = [
				"ok",
				"",
				encoded(await run(peer))
			];
		} catch (error) {
			verdict = verdictOf(error);
		}
		this.#answer(from, number, verdict, forMs());
	}
	/** Sends an answer, again until a node receives it or `forMs` have passed; if they are `Infinity`, while the caller's node lives. */
	#answer(to, number, [verdict, outcome, body], forMs) {
		const { broker, id: node, answers, nodes } = this.#node;
		const { maxFrameBytes = Infinity } = broker.facts ?? {};
		let frame = frameOf(Kind.Answer, [
			number,
			node,
			verdict,
			outcome
		], body);
		const size = utf8Bytes(frame);
		if (size > maxFrameBytes) {
			const large = JSON.stringify({
				bytes: size,
				maxMessageBytes: maxFrameBytes
			});
			frame = frameOf(Kind.Answer, [
				number,
				node,
				"large",
				"unknown"
			], large);
		}
		answers.send(`n:${to}`, () => frame, forMs, (count = 1) => count > 0 || forMs === Infinity && !nodes.live.has(to));
	}
	/** Rejects all calls, and cancels them on the nodes of the peers. */
	end() {
		for (const call of this.#calls.values()) this.#giveUp(call, new ConnectionLostError(call.method, call.isWritten ? "unknown" : "not-sent", CLOSED));
	}
};
var CLOSED = /* @__PURE__ */ new Error("this node is closed");
var NO_NODE = /* @__PURE__ */ new Error("the node of the peer does not live");
function encoded(value) {
	return messageJson(value, (_key, one) => one instanceof Uint8Array ? JSON.stringify(bytes(one)).slice(1, -1) : one) ?? "null";
}
function textIn(value) {
	return typeof value === "string" ? value : "";
}
function numberIn(value) {
	return typeof value === "number" ? value : NaN;
}
function verdictOf(error) {
	try {
		return describe(error);
	} catch {
		return [
			"failed",
			"",
			JSON.stringify("the call failed with an error that cannot be converted to text")
		];
	}
}
function describe(error) {
	if (error instanceof RpcError) {
		const { code, message, data } = error;
		return [
			"error",
			"",
			encoded({
				code,
				message,
				data
			})
		];
	}
	if (error instanceof TimeoutError) return [
		"timeout",
		error.outcome,
		"null"
	];
	if (error instanceof ConnectionLostError) return [
		"lost",
		error.outcome,
		"null"
	];
	if (error instanceof TooLargeError) {
		const { bytes: size, maxMessageBytes } = error;
		return [
			"large",
			"not-sent",
			JSON.stringify({
				bytes: size,
				maxMessageBytes
			})
		];
	}
	if (error instanceof ProtocolError) return [
		"protocol",
		"",
		encoded({
			message: error.message,
			raw: error.raw
		})
	];
	return [
		error instanceof TypeError ? "type" : "failed",
		"",
		JSON.stringify(error instanceof Error ? error.message : String(error))
	];
}
function errorOf({ method, settings }, verdict, outcome, value) {
	const { code, message, data, raw, bytes: size, maxMessageBytes } = isObject(value) ? value : {};
	if (verdict === "error" && Number.isInteger(code) && typeof message === "string") return receivedError(method, code, message, data);
	if (verdict === "timeout") return new TimeoutError(method, settings.timeoutMs, outcome);
	if (verdict === "large") return new TooLargeError(method, numberIn(size), numberIn(maxMessageBytes));
	if (verdict === "protocol") return new ProtocolError(textIn(message), raw);
	if (verdict === "type") return mistake(textIn(value));
	if (verdict === "failed") return Object.assign(new Error(textIn(value)), { method });
	return new ConnectionLostError(method, outcome, NO_PEER);
}
var MAX_UNANSWERED = 1e4;
var MAX_UNANSWERED_BYTES = 16 * 2 ** 20;
var MAX_WAITING = 1e3;
var MAX_WAITING_BYTES = 4 * 2 ** 20;
var COMMAND_TIMEOUT_MS = 5e3;
var MAX_BULK = 128;
var LINGER_MS = 5e3;
var RETRY_MS$2 = 1e3;
var REPORTED_FAILURE = 2;
var Broker = class {
	#engine;
	#events;
	/** `starting`: the start has not succeeded or failed yet. Until then everything waits, because no client is here. */
	#state;
	/** The error of what needs the connection while there is none: one for each loss, because the stack of an error is expensive. */
	#refusal;
	#unanswered;
	#unansweredBytes;
	/** The commands that wait for the connection, by their `run`. */
	#waiting;
	#waitingBytes;
	#subscriptions;
	/** Bulk work, by key. Each source sends a frame, and then the next one. */
	#bulk;
	/** Where the next frame comes from. What is before was sent or put at the end, so that no source is looked at twice. */
	#nextBulk;
	#unansweredBulk;
	constructor(engine, node, events) {
		this.facts = void 0;
		this.counts = {
			sent: 0,
			dropped: 0,
			failedSubscriptions: 0,
			reconnects: 0
		};
		this.#state = "starting";
		this.#unanswered = 0;
		this.#unansweredBytes = 0;
		this.#waiting = /* @__PURE__ */ new Map();
		this.#waitingBytes = 0;
		this.#subscriptions = /* @__PURE__ */ new Map();
		this.#bulk = /* @__PURE__ */ new Map();
		this.#unansweredBulk = 0;
		this.#engine = engine;
		this.#events = events;
		this.#refusal = this.#makeRefusal();
		this.connection = engine.createConnection(node, {
			received: events.received,
			up: () => this.#up(this.facts),
			down: (error) => this.#down(error),
			resubscribed: (channels) => this.#resubscribed(channels)
		});
	}
	get name() {
		return this.#engine.name;
	}
	get isUp() {
		return this.#state === "up";
	}
	/** Bytes of the frames and entries that are written and not answered, or wait for the connection. */
	get pendingBytes() {
		return this.#unansweredBytes + this.#waitingBytes;
	}
	/** Connects. Rejects with the last `EngineError` if that takes longer than the settings allow. */
	async open() {
		const { startTimeoutMs = 1e4, startWithout = false } = this.#engine.settings ?? {};
		const opened = this.connection.open().then((facts) => this.#up(facts));
		let isLate = false;
		const late = () => {
			isLate = true;
			const { cause } = this.#refusal;
			return cause ?? new EngineError(`no connection to ${this.name} within ${startTimeoutMs} ms`, "not-sent");
		};
		try {
			await inTime(opened, startTimeoutMs, late);
		} catch (error) {
			if (this.#state === "starting") this.#state = "down";
			if (!isLate || !startWithout) throw error;
			opened.catch((reason) => {
				if (this.#state === "closed") return;
				this.#refusal = this.#makeRefusal(reason);
				this.#events.failed(reason);
			});
		}
	}
	async close() {
		this.#state = "closed";
		for (const command of this.#waiting.values()) this.#dequeue(command).reject(this.#refusal);
		for (const { timer } of this.#subscriptions.values()) clearDeadline(timer);
		this.#subscriptions.clear();
		this.#bulk.clear();
		await this.connection.close();
	}
	/** Sends a frame at most once. Drops it if the connection is down, or if too much is unanswered and the frame is not vital. */
	send(channel, frame, isVital = false) {
		const bytes2 = utf8Bytes(frame);
		if (!this.isUp || !isVital && !this.#hasRoom(bytes2) || bytes2 > this.facts.maxFrameBytes) {
			if (!isVital) this.counts.dropped++;
			return;
		}
		this.counts.sent++;
		const answered = this.#count(bytes2);
		this.connection.send(channel, frame).then(answered, () => {
			answered();
			this.counts.dropped++;
		});
	}
	/**
	* Sends the frames of a source, few at a time. A source replaces the one with the same key. If the connection is lost, forgets all
	* sources: what they say is exchanged again.
	*/
	later(key, frames) {
		if (!this.isUp) return;
		this.#bulk.set(key, frames);
		this.#sendBulk();
	}
	#sendBulk() {
		while (this.#unansweredBulk < MAX_BULK) {
			this.#nextBulk ??= this.#bulk.entries();
			const next = this.#nextBulk.next();
			if (next.done === true) return void (this.#nextBulk = void 0);
			const [key, frames] = next.value;
			this.#bulk.delete(key);
			const { done, value } = frames.next();
			if (done === true) continue;
			this.#bulk.set(key, frames);
			this.#unansweredBulk++;
			this.counts.sent++;
			const settled = () => {
				this.#unansweredBulk--;
				this.#sendBulk();
			};
			const [channel, frame] = value;
			this.connection.send(channel, frame).then(settled, () => {
				this.counts.dropped++;
				settled();
			});
		}
	}
	/**
	* Runs a command of the engine, now or when the connection is up. When it is up, first waits for what `prepare` returns, which never
	* rejects. Commands that wait for the same keep their order. Rejects with an `EngineError`: with `"not-sent"` if the command is not
	* written within `timeoutMs` or too much waits, and with `"unknown"` if it is not answered. `bytes`: its length.
	*/
	run(bytes2, timeoutMs, run, prepare) {
		return new Promise((resolve, reject) => {
			const expire = () => this.#expired(command);
			const command = {
				deadline: 0,
				expire,
				bytes: bytes2,
				run,
				resolve,
				reject,
				isWritten: false,
				prepare
			};
			const preparing = this.isUp ? prepare?.() : void 0;
			if (this.isUp && preparing === void 0) this.#write(command, timeoutMs);
			else if (this.#wait(command, timeoutMs)) preparing?.then(() => this.#proceed(command));
		});
	}
	/** Lets a command wait, or refuses it. Returns true if it waits. */
	#wait(command, timeoutMs) {
		if (this.#state === "closed") {
			command.reject(this.#refusal);
			return false;
		}
		if (this.#waiting.size > 0 && this.#waitingBytes + command.bytes > MAX_WAITING_BYTES || this.#waiting.size >= MAX_WAITING) {
			this.counts.dropped++;
			command.reject(new EngineError(`too much waits for ${this.name}`, "not-sent"));
			return false;
		}
		this.#waiting.set(command.run, command);
		this.#waitingBytes += command.bytes;
		setDeadline(command, timeoutMs);
		return true;
	}
	/** Writes a command that waits, unless the connection is lost again or its time has passed. */
	#proceed(command) {
		if (!this.isUp || !this.#waiting.has(command.run)) return;
		const leftMs = command.deadline === 0 ? Infinity : command.deadline - performance.now();
		this.#dequeue(command);
		this.#write(command, Math.max(leftMs, 1));
	}
	/** Cancels a command that waits for the connection, so that it counts no longer. Its promise rejects with `"not-sent"`. */
	cancel(run) {
		const command = this.#waiting.get(run);
		if (command !== void 0) this.#dequeue(command).reject(this.#refusal);
	}
	/** Runs a command of the engine. Rejects at once if the connection is down. `bytes`: its length, unless it is short. */
	now(run, bytes2 = 0, timeoutMs = COMMAND_TIMEOUT_MS) {
		return this.isUp || this.#state === "starting" ? this.run(bytes2, timeoutMs, run) : Promise.reject(this.#refusal);
	}
	#expired(command) {
		let error = this.#refusal;
		if (command.isWritten) error = new EngineError(`${this.name} has not answered in time`, "unknown");
		else if (this.isUp) error = new EngineError(`${this.name} was not ready in time`, "not-sent");
		this.#dequeue(command).reject(error);
	}
	#write(command, timeoutMs) {
		if (!this.#hasRoom(command.bytes)) {
			this.counts.dropped++;
			return command.reject(new EngineError(`too much is unanswered by ${this.name}`, "not-sent"));
		}
		command.isWritten = true;
		setDeadline(command, Math.min(timeoutMs, COMMAND_TIMEOUT_MS));
		const answered = this.#count(command.bytes);
		const settled = () => {
			answered();
			clearDeadline(command);
		};
		command.run().then((value) => (settled(), command.resolve(value)), (error) => (settled(), command.reject(error)));
	}
	#dequeue(command) {
		clearDeadline(command);
		if (this.#waiting.delete(command.run)) this.#waitingBytes -= command.bytes;
		return command;
	}
	/** Counts a command as unanswered. Returns what ends that. */
	#count(bytes2) {
		this.#unanswered++;
		this.#unansweredBytes += bytes2;
		return () => {
			this.#unanswered--;
			this.#unansweredBytes -= bytes2;
		};
	}
	#hasRoom(bytes2) {
		return (this.#unanswered === 0 || this.#unansweredBytes + bytes2 <= MAX_UNANSWERED_BYTES) && this.#unanswered < MAX_UNANSWERED;
	}
	#makeRefusal(cause) {
		return new EngineError(`there is no connection to ${this.name}`, "not-sent", cause && { cause });
	}
	#up(facts) {
		if (facts === void 0 || this.#state === "closed" || this.isUp) return;
		this.#state = "up";
		this.#refusal = this.#makeRefusal();
		if (this.facts !== void 0) this.counts.reconnects++;
		this.facts = facts;
		for (const command of Array.from(this.#waiting.values())) {
			const preparing = command.prepare?.();
			if (preparing === void 0) this.#proceed(command);
			else preparing.then(() => this.#proceed(command));
		}
		for (const subscription of this.#subscriptions.values()) this.#keep(subscription);
		this.#events.up();
	}
	#down(error) {
		if (this.#state === "closed") return;
		this.#refusal = this.#makeRefusal(error);
		if (!this.isUp) return;
		this.#state = "down";
		this.#bulk.clear();
		this.#events.down(error);
	}
	#resubscribed(channels) {
		if (this.#state === "closed") return;
		const restored = channels === "all" ? [...this.#subscriptions.keys()] : channels;
		this.#events.resubscribed(restored.filter((channel) => this.#subscriptions.get(channel)?.isSubscribed));
	}
	/** Wants the messages of a channel from now on, until as many calls of `release`. They are received when `ready` has resolved. */
	want(channel) {
		const unused = {
			channel,
			uses: 0,
			timer: {
				deadline: 0,
				expire: () => this.#expireSubscription(subscription)
			},
			isSubscribed: false,
			failures: 0,
			subscribing: void 0
		};
		const subscription = this.#subscriptions.get(channel) ?? unused;
		this.#subscriptions.set(channel, subscription);
		subscription.uses++;
		clearDeadline(subscription.timer);
		this.#keep(subscription);
	}
	/** Does not want the messages of a channel any more. The subscription is kept for `LINGER_MS`. */
	release(channel) {
		const subscription = this.#subscriptions.get(channel);
		if (subscription !== void 0 && --subscription.uses === 0) setDeadline(subscription.timer, LINGER_MS);
	}
	#expireSubscription(subscription) {
		const { channel, uses, timer, isSubscribed, subscribing } = subscription;
		if (uses > 0) return this.#keep(subscription);
		if (subscribing !== void 0) return setDeadline(timer, LINGER_MS);
		if (isSubscribed) this.connection.unsubscribe(channel);
		this.#subscriptions.delete(channel);
	}
	/** Subscribes to a channel while the connection is up and the channel is wanted. */
	#keep(subscription) {
		if (!this.isUp || subscription.isSubscribed || subscription.uses === 0) return;
		this.#subscribe(subscription).catch(() => {});
	}
	#subscribe(subscription) {
		return subscription.subscribing ??= this.connection.subscribe(subscription.channel).then(() => void (subscription.isSubscribed = true)).catch((error) => {
			this.#failed(subscription, error);
			throw error;
		}).finally(() => subscription.subscribing = void 0);
	}
	/** Tries again later, unless the loss of the connection is the reason. */
	#failed(subscription, cause) {
		if (!this.isUp) return;
		const { channel, uses, timer } = subscription;
		if (uses > 0) setDeadline(timer, RETRY_MS$2);
		this.counts.failedSubscriptions++;
		if (++subscription.failures !== REPORTED_FAILURE) return;
		const text2 = `${this.name} does not subscribe to ${JSON.stringify(channel)}, so this node lacks what others send there`;
		this.#events.failed(new EngineError(text2, "not-sent", { cause }));
	}
	/**
	* Resolves when every message of a wanted channel is received. Rejects at once if the connection is down or gets down, and after 5 s if
	* the broker does not answer.
	*/
	ready(channel) {
		if (!this.isUp) return this.now(async () => {}).then(() => this.ready(channel));
		const subscription = this.#subscriptions.get(channel);
		if (subscription === void 0) return Promise.reject(this.#refusal);
		if (subscription.isSubscribed) return Promise.resolve();
		const late = () => new EngineError(`${this.name} has not subscribed in time`, "not-sent");
		return inTime(this.#subscribe(subscription), COMMAND_TIMEOUT_MS, late);
	}
};
function inTime(work, timeoutMs, late) {
	return new Promise((resolve, reject) => {
		const timer = {
			deadline: 0,
			expire: () => reject(late())
		};
		setDeadline(timer, timeoutMs);
		work.then(resolve, reject).finally(() => clearDeadline(timer));
	});
}
var LEASE_MS = 1e4;
var BEATS = 3;
var MOST_LOST_BEATS = 2;
var LONGEST_BACKOFF_MS = 2e4;
var MAX_ENDED = 1e4;
var LiveNodes = class {
	#node;
	#leaseMs;
	#output;
	/** The last sign of each node that lives, and when others were called first. */
	#signs = /* @__PURE__ */ new Map();
	#live;
	/** Nodes that were given up, and whether they have closed. Their names are not used again. */
	#ended = /* @__PURE__ */ new Map();
	#number = 0;
	/** The beats that have not come back, the oldest first, and when they were sent. */
	#away = [];
	#lagMs;
	/** When a beat of this node came back last, and since when it judges the others. */
	#echoedAt;
	#judgesFrom;
	constructor(node, leaseMs, output, now) {
		this.#node = node;
		this.#leaseMs = leaseMs;
		this.#output = output;
		this.#live = /* @__PURE__ */ new Set([node]);
		this.#echoedAt = this.#judgesFrom = now;
	}
	/** The nodes that live, with this one. */
	get live() {
		return this.#live;
	}
	/** Returns true if a node that lives, or this one, has missed a beat: it may be cut off. */
	isBeatMissing(now) {
		const own = {
			at: this.#echoedAt,
			leaseMs: this.#leaseMs
		};
		return Array.from(this.#live, (node) => this.#signs.get(node) ?? own).some(({ at, leaseMs }) => now - at > 1.5 * leaseMs / BEATS);
	}
	/** Returns how long the last beat took to come back, or how long it has been away if that is longer. */
	lagMs(now) {
		const awayMs = now - (this.#away[0]?.at ?? now);
		return this.#lagMs === void 0 ? void 0 : Math.max(this.#lagMs, awayMs);
	}
	/** The connection is up. What was sent before does not come back, and no node is given up until a beat does. */
	connected() {
		this.#away = [];
		this.#judgesFrom = Infinity;
	}
	/** Sends a beat. Returns false if the earlier ones did not come back: then nothing is sent, and the connection must be opened anew. */
	beat(now) {
		if (this.#away.length >= MOST_LOST_BEATS) {
			this.connected();
			return false;
		}
		this.#away.push({
			number: ++this.#number,
			at: now
		});
		this.#output.send("a:all", this.#frame(""));
		return true;
	}
	/** Returns the last beat: the others forget this node at once. */
	bye() {
		return this.#frame("bye");
	}
	#frame(note) {
		return frameOf(Kind.Beat, [
			this.#node,
			this.#number,
			this.#leaseMs,
			note
		]);
	}
	/** Takes the fields of a beat. Returns false if they are none. */
	received([from = "", number, lease, note], now) {
		const leaseMs = Number(lease);
		if (!isNodeName(from) || !(leaseMs > 0 && leaseMs < Infinity)) return false;
		if (from === this.#node) this.#cameBack(Number(number), now);
		else if (note === "bye") this.#end(from, "closed");
		else if (this.noteSign(from, now, leaseMs) && note === "again") this.#output.forgotten(from);
		return true;
	}
	#cameBack(number, now) {
		const index = this.#away.findIndex((beat) => beat.number === number);
		if (index === -1) return;
		this.#lagMs = now - this.#away[index].at;
		this.#away = this.#away.slice(index + 1);
		const awayMs = now - this.#echoedAt;
		this.#echoedAt = now;
		if (this.#judgesFrom === Infinity || awayMs > 2 * this.#leaseMs / BEATS) this.#judgesFrom = now + Math.min(awayMs, LONGEST_BACKOFF_MS);
		for (const [node, { at, leaseMs }] of this.#signs) if (now - Math.max(at, this.#judgesFrom) > leaseMs) this.#end(node, "silent");
	}
	/** Takes a sign of another node. Returns false if the node has closed, so that the sign is an old one. */
	noteSign(node, now, leaseMs) {
		const ended = this.#ended.get(node);
		if (ended === "closed") return false;
		const sign = this.#signs.get(node);
		if (sign !== void 0 && this.#live.has(node)) {
			sign.at = now;
			sign.leaseMs = leaseMs ?? sign.leaseMs;
			return true;
		}
		this.#ended.delete(node);
		this.#signs.set(node, {
			at: now,
			leaseMs: leaseMs ?? this.#leaseMs
		});
		this.#live.add(node);
		this.#output.send(`n:${node}`, this.#frame(ended === void 0 ? "new" : "again"));
		return true;
	}
	/** A call is sent to a node. If it gives no sign, it is lost. Returns false if the node has closed. */
	expects(node, now) {
		if (this.#ended.get(node) === "closed") return false;
		if (!this.#signs.has(node)) this.#signs.set(node, {
			at: now,
			leaseMs: this.#leaseMs
		});
		return true;
	}
	#end(node, how) {
		this.#signs.delete(node);
		const wasLive = this.#live.delete(node);
		if (wasLive || how === "closed") {
			if (this.#ended.size >= MAX_ENDED) this.#ended.delete(this.#ended.keys().next().value);
			this.#ended.set(node, how);
		}
		this.#output.lost(node, wasLive);
	}
};
var NODE_LENGTH = 12;
var MOST_AT_ONCE = 32;
var READ_TIMEOUT_MS = 3e3;
var Limit = class {
	#running = 0;
	#waiting = new List();
	async run(operation) {
		if (this.#running >= MOST_AT_ONCE) await new Promise((begin) => this.#waiting.add({ begin }));
		else this.#running++;
		try {
			return await operation();
		} finally {
			const next = this.#waiting.first;
			if (next === void 0) this.#running--;
			else if (unlink(next)) next.begin();
		}
	}
};
var FleetNode = class {
	#beat;
	/** A log that is not answered delays no question. */
	#reads;
	constructor(engine, host, events) {
		this.id = nanoid(NODE_LENGTH);
		this.counts = {
			received: 0,
			foreign: 0,
			healed: 0,
			gaps: 0
		};
		this.#beat = {
			deadline: 0,
			expire: () => this.beat()
		};
		this.#reads = new Limit();
		this.questions = new Limit();
		this.isClosed = false;
		this.host = host;
		this.broker = new Broker(engine, this.id, events);
		this.answers = new Repeats(this.broker, 1e4, 16 * 2 ** 20);
		this.reports = new Repeats(this.broker, 1e3, 2 ** 20);
		this.closes = new Repeats(this.broker, 1e4, 4 * 2 ** 20);
		this.own = new OwnPeers(host, (principal, isHere) => {
			if (isHere) this.broker.want(channelOf(principal));
			else this.broker.release(channelOf(principal));
		});
		this.leaseMs = engine.settings?.leaseMs ?? LEASE_MS;
		const send = (channel, frame) => this.broker.send(channel, frame, true);
		this.nodes = new LiveNodes(this.id, this.leaseMs, {
			...events,
			send
		}, performance.now());
	}
	/** Sends a beat, and the next ones. Reconnects if they do not come back. */
	beat() {
		if (this.isClosed) return;
		setDeadline(this.#beat, this.leaseMs / BEATS);
		const { connection, name, isUp } = this.broker;
		if (!isUp || this.nodes.beat(performance.now())) return;
		connection.reconnect(new EngineError(`the beats of this node do not come back over ${name}`, "unknown"));
	}
	/** Says that this node ends, and disconnects. Never rejects. */
	async close() {
		this.isClosed = true;
		clearDeadline(this.#beat);
		this.answers.stop();
		this.reports.stop();
		this.closes.stop();
		const { broker, nodes } = this;
		if (broker.isUp) await broker.now(() => broker.connection.send("a:all", nodes.bye())).catch(() => {});
		await broker.close();
	}
	/** Members of a topic have missed publications: by default, all of this node. */
	gap(topic, reason, members = this.host.membersOf(topic)) {
		this.counts.gaps++;
		this.host.gap(topic, reason, members);
	}
	/** Returns the peer of this node with a local id. */
	peerAt(localId) {
		return this.own.get(this.idOf({
			node: this.id,
			localId
		}));
	}
	addressOf(id) {
		const dot = id.indexOf(".");
		return dot < 0 ? {
			node: "",
			localId: id
		} : {
			node: id.slice(0, dot),
			localId: id.slice(dot + 1)
		};
	}
	idOf({ node, localId }) {
		return `${node}.${localId}`;
	}
	/** Returns the ids of those peers that other nodes may have. A frame needs no escape for them. */
	elsewhere(peers) {
		return Array.from(peers, (peer) => typeof peer === "string" ? peer : peer.id).filter((id) => {
			const { node, localId } = this.addressOf(id);
			return node !== this.id && isNodeName(node) && isNodeName(localId);
		});
	}
	/** Returns the options of a notification of another node. `topics`: those whose members get nothing. */
	optionsOf([_from, except = "", slow, volatile, latest = ""], topics = []) {
		const named = () => new Exclusion({
			peers: new Set(except.split(",").flatMap((id) => this.own.get(id) ?? [])),
			topics
		}, (topic) => this.host.membersOf(topic));
		return {
			except: except === "" && topics.length === 0 ? void 0 : named(),
			whenSlow: slow === "c" ? "close" : "drop",
			volatile: volatile === "v",
			latest: latest.startsWith("=") ? latest.slice(1, 257) : void 0
		};
	}
	/** Reads a page of a log, and begins one as the rule says if there is none. Rejects with an `EngineError`. */
	read(topic, after, page, rule) {
		const { broker } = this;
		const read = () => broker.connection.log.read(topic, after, page, rule);
		return this.#reads.run(() => broker.now(read, 0, READ_TIMEOUT_MS));
	}
};
var UNCOUNTED_MS = 200;
var COUNTED_MS = 5e3;
var REPEAT_MS$1 = 3e4;
var Principals = class {
	#node;
	#questions = /* @__PURE__ */ new Map();
	#lastNumber = 0;
	constructor(node) {
		this.#node = node;
	}
	notifyAll(principal, method, params) {
		const { broker, id, own } = this.#node;
		const body = plainText(encodeNotification$1(method, params));
		broker.send(channelOf(principal), frameOf(Kind.Principal, [
			0,
			id,
			"notify",
			0,
			principal
		], body));
		own.notifyAll(principal, method, params);
	}
	async find(principal) {
		const asking = this.#ask(principal, "peers", 0, "null");
		const own = this.#node.own.idsOf(principal);
		const [answers, isComplete] = await asking;
		return {
			ids: /* @__PURE__ */ new Set([...own, ...answers.flatMap(textsIn)]),
			isComplete
		};
	}
	async disconnect(principal, code, reason) {
		const { closes, id, own } = this.#node;
		const at = performance.now();
		const body = JSON.stringify(reason);
		const asking = this.#ask(principal, "close", code, body);
		const closed = own.closeAll(principal, code, reason);
		const again = () => frameOf(Kind.Principal, [
			0,
			id,
			"close",
			code,
			principal,
			performance.now() - at
		], body);
		closes.send(channelOf(principal), again, REPEAT_MS$1, () => false);
		const [answers, isComplete] = await asking;
		return {
			closed: answers.reduce((sum, one) => sum + (typeof one === "number" ? one : 0), closed),
			isComplete
		};
	}
	/** Asks the nodes of a principal. Resolves with the answers, and with whether they are all. Never rejects. */
	#ask(principal, verb, code, body) {
		const { broker, id, nodes } = this.#node;
		const number = ++this.#lastNumber;
		const frame = frameOf(Kind.Principal, [
			number,
			id,
			verb,
			code,
			principal
		], body);
		return new Promise((resolve) => {
			const answers = /* @__PURE__ */ new Map();
			const end = () => {
				if (!this.#questions.delete(number)) return;
				clearDeadline(question);
				resolve([[...answers.values()], answers.size >= question.count && !nodes.isBeatMissing(performance.now())]);
			};
			const question = {
				deadline: 0,
				expire: end,
				end,
				count: Infinity,
				answers
			};
			this.#questions.set(number, question);
			const taken = (count) => {
				if (!this.#questions.has(number)) return;
				question.expire = () => {
					question.count = count ?? 0;
					question.expire = end;
					setDeadline(question, COUNTED_MS);
					this.#check(question);
				};
				if (count !== void 0 && broker.facts?.undercounts !== true) question.expire();
				else setDeadline(question, UNCOUNTED_MS);
			};
			broker.now(() => broker.connection.send(channelOf(principal), frame)).then(taken, end);
		});
	}
	#check(question) {
		if (question.answers.size >= question.count) question.end();
	}
	/** Takes a frame about a principal. Returns false if it breaks a rule. */
	received({ kind, fields, body }) {
		const { broker, id, own } = this.#node;
		const [numberField, from = "", verb, code, principal, ageMs = 0] = fields;
		const number = Number(numberField);
		const value = verb === "notify" ? notificationIn(body) : parsed(body);
		if (!Number.isSafeInteger(number) || from === "" || value === void 0) return false;
		if (kind === Kind.PeersOf || from === id) {
			const question = this.#questions.get(number);
			question?.answers.set(from, from === id ? null : value);
			if (question !== void 0) this.#check(question);
			return true;
		}
		if (principal === void 0) return false;
		if (verb === "notify") {
			const { method, params } = value;
			own.notifyAll(principal, method, params);
			return true;
		}
		const reason = typeof value === "string" ? value : "";
		const until = performance.now() - Number(ageMs);
		const answer = verb === "close" ? own.closeAll(principal, Number(code), reason, until) : own.idsOf(principal);
		if (number > 0) broker.send(`n:${from}`, frameOf(Kind.PeersOf, [number, id], JSON.stringify(answer)));
		return true;
	}
	/** Ends all questions. */
	end() {
		for (const question of this.#questions.values()) question.end();
	}
};
function textsIn(value) {
	return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}
var Join = class {
	#topic;
	#host;
	#state;
	constructor(peer, as, topic, host) {
		this.#state = { kind: "first" };
		this.refusedBytes = 0;
		this.peer = peer;
		this.as = as;
		this.#topic = topic;
		this.#host = host;
		this.settled = new Promise((resolve) => this.settle = resolve);
	}
	/** Takes a live message. If too much is queued, the peer becomes a member, and has a gap. Returns true if the peer will get it. */
	queue(method, message, options) {
		const state = this.#state;
		const { peer } = this;
		if (state.kind !== "replay" || options.except?.has(peer) === true || options.volatile === true) return false;
		const { onDropped } = options;
		const refused = (bytes2) => void (this.refusedBytes = bytes2);
		if (onDropped !== void 0 && !this.#host.accepts(peer, message)) refused(utf8Bytes(message));
		const queuedOptions = onDropped === void 0 ? options : {
			...options,
			onDropped: refused
		};
		state.queued.push(() => this.#host.send([peer], method, message, queuedOptions));
		state.length += message.length;
		if (state.length > this.#host.maxReplayLength) {
			this.release();
			this.#host.add(this.#topic.name, peer);
		}
		return true;
	}
	/** The peer gets live messages from now on: sends what was queued. */
	release() {
		const state = this.#state;
		if (state.kind === "cancelled") return;
		this.#state = { kind: "live" };
		if (state.kind === "replay") for (const send of state.queued) send();
	}
	/** The application has removed the peer. */
	cancel() {
		this.#state = { kind: "cancelled" };
	}
	/** Throws if the peer cannot become a member any more. */
	checkPresent() {
		checkJoin(this.peer, this.#state.kind === "cancelled");
	}
	/** Makes the peer a member at the present position, behind what it has missed. */
	async enter(since) {
		this.checkPresent();
		const { name, log, publicationOptions } = this.#topic;
		const { peer } = this;
		const at = log?.position && textOf(log.position);
		const isMember = this.#host.membersOf(name).has(peer);
		let missed;
		if (since !== void 0 && log !== void 0) {
			const reading = isMember ? at === textOf(since) ? [] : void 0 : log.since(since);
			missed = reading instanceof Promise ? await this.#replay(log, reading) : reading;
		}
		this.checkPresent();
		if (missed?.some(({ text: message }) => !this.#host.accepts(peer, message)) === true) missed = void 0;
		for (const { method, text: message } of missed ?? []) this.#host.send([peer], method, message, publicationOptions);
		this.release();
		this.#host.add(name, peer);
		this.checkPresent();
		const isComplete = missed !== void 0 && this.refusedBytes === 0;
		return log === void 0 ? {} : {
			at,
			outcome: isComplete ? "complete" : "gap"
		};
	}
	/** Holds live messages while the log is read. Returns what the peer has missed. `undefined`: a gap. */
	async #replay(log, reading) {
		this.#state = {
			kind: "replay",
			queued: [],
			length: 0
		};
		const { gaps } = log;
		const isReplaying = () => this.#state.kind === "replay";
		let missed;
		try {
			missed = await reading;
		} catch (error) {
			if (isReplaying()) throw error;
		}
		return isReplaying() && this.refusedBytes === 0 && log.gaps === gaps ? missed : void 0;
	}
};
var MAX_AHEAD$1 = 1e3;
var REPEAT_MS = 1e3;
var LONGEST_REPEAT_MS = 16e3;
var PART_LENGTH = 16384;
var Members = class {
	#node;
	#output;
	/** By topic. Kept until the digest of the last change was repeated. */
	#own = /* @__PURE__ */ new Map();
	/** The number of the last change in any topic. */
	#number = 0;
	#followed = /* @__PURE__ */ new Map();
	/** How often changes were missed. */
	#losses = 0;
	/** Those that were asked. */
	#asked = /* @__PURE__ */ new Set();
	constructor(node, output) {
		this.#node = node;
		this.#output = output;
	}
	/** Adds a member of this node, or changes its `as`. Returns false if that changes nothing. */
	put(topic, localId, as) {
		const own = this.#own.get(topic) ?? {
			number: 0,
			members: /* @__PURE__ */ new Map()
		};
		if (own.members.get(localId) === as) return false;
		this.#own.set(topic, own);
		this.#change(topic, own, localId, as);
		return true;
	}
	/** Removes a member of this node. Returns false if it is none. */
	remove(topic, localId) {
		const own = this.#own.get(topic);
		if (own?.members.has(localId) !== true) return false;
		this.#change(topic, own, localId, void 0);
		return true;
	}
	#change(topic, own, localId, as) {
		const before = own.members.size === 0 ? 0 : own.number;
		own.number = ++this.#number;
		const last = as ?? own.members.get(localId);
		if (as === void 0) own.members.delete(localId);
		else own.members.set(localId, as);
		const kind = as === void 0 ? Kind.Left : Kind.Joined;
		this.#output.send(`t:${topic}`, frameOf(kind, [
			this.#node,
			own.number,
			before,
			localId
		], as));
		this.#output.changed(topic, as === void 0 ? "left" : "joined", this.#node, localId, last);
	}
	/** Returns the number of this node's last change in a topic; `undefined` if it has forgotten the topic. */
	numberOf(topic) {
		return this.#own.get(topic)?.number;
	}
	/** The topics in which this node has or had members. */
	get ownTopics() {
		return this.#own.keys();
	}
	/** Forgets a topic in which this node has no members. */
	forget(topic) {
		if (this.#own.get(topic)?.members.size === 0) this.#own.delete(topic);
	}
	/** Begins to follow a topic: its channel is or will be subscribed. */
	follow(topic) {
		const question = {
			answered: /* @__PURE__ */ new Set(),
			count: void 0,
			done: () => {}
		};
		this.#followed.set(topic, {
			known: /* @__PURE__ */ new Map(),
			question
		});
	}
	unfollow(topic) {
		const followed = this.#followed.get(topic);
		this.#followed.delete(topic);
		for (const known of followed?.known.values() ?? []) this.#confirm(known);
		followed?.question?.done();
	}
	/** Whether the first question about a topic was answered. */
	isKnown(topic) {
		return this.#followed.get(topic)?.question === void 0;
	}
	/** Returns the first question about a topic, for its channel. `done` is called once, when all have answered. */
	ask(topic, done) {
		this.#followed.get(topic).question.done = done;
		return this.#question(topic);
	}
	/** So many nodes have received the first question, with this one. */
	counted(topic, count) {
		const followed = this.#followed.get(topic);
		if (followed?.question !== void 0) followed.question.count = count;
		if (followed !== void 0) this.#check(followed);
	}
	/** Waits no longer for answers to the first question. */
	enough(topic) {
		const followed = this.#followed.get(topic);
		if (followed !== void 0) this.#end(followed);
	}
	#check(followed) {
		const { answered, count = Infinity } = followed.question ?? {};
		if (answered !== void 0 && answered.size >= count - 1) this.#end(followed);
	}
	#end(followed) {
		const { question } = followed;
		followed.question = void 0;
		question?.done();
	}
	/** Returns a question. `known`: the nodes whose members are known need not answer with the same again. */
	#question(topic, known = []) {
		const lines = Array.from(known, ([node, { number }]) => `${node} ${number}`);
		return frameOf(Kind.Question, [this.#node, topic], lines.join("\n"));
	}
	/** Changes of these topics may have been missed. Asks on their channels, and later those that do not answer there. */
	missed(topics) {
		const frames = function* () {
			for (const topic of topics) {
				const followed = this.#followed.get(topic);
				if (followed === void 0) continue;
				for (const known of followed.known.values()) if (known.members.size > 0) this.#await(known);
				else this.#confirm(known);
				yield [`t:${topic}`, this.#question(topic, followed.known)];
			}
		};
		this.#output.later(`missed ${++this.#losses}`, frames.call(this));
	}
	/** Repeats the questions that were not answered. Returns true if some are left. */
	tick(now) {
		for (const known of this.#asked) {
			known.askedAt = Math.min(known.askedAt, now);
			if (now - known.askedAt < known.repeatMs) continue;
			known.repeatMs = Math.min(known.repeatMs * 2, LONGEST_REPEAT_MS);
			this.#askNode(known);
		}
		return this.#asked.size > 0;
	}
	/** The node is asked now. */
	#await(known) {
		known.askedAt = Infinity;
		this.#asked.add(known);
		this.#output.asked();
	}
	#askNode(known) {
		known.askedAt = Infinity;
		this.#asked.delete(known);
		known.parts = void 0;
		const { topic, node } = known;
		const frames = function* () {
			if (known.askedAt === void 0) return;
			this.#await(known);
			yield [`n:${node}`, this.#question(topic, [[node, known]])];
		};
		this.#output.later(`k ${node} ${topic}`, frames.call(this));
	}
	#confirm(known) {
		known.askedAt = void 0;
		known.repeatMs = REPEAT_MS;
		this.#asked.delete(known);
	}
	/** Answers with the members of this node. `known`: what the other node knows, a line for each node. */
	*#answer(to, topic, known) {
		const own = this.#own.get(topic);
		const last = own?.number ?? this.#number;
		const frame = (part2, isLast, body = "") => [`n:${to}`, frameOf(Kind.Members, [
			this.#node,
			topic,
			last,
			part2,
			isLast ? 1 : 0
		], body)];
		if (known.split("\n").includes(`${this.#node} ${last}`)) {
			yield frame("", true);
			return;
		}
		const members = [...own?.members ?? []];
		let [at, part] = [0, 0];
		do {
			const from = at;
			for (let length = 0; at < members.length && length < PART_LENGTH; at++) length += members[at][0].length + members[at][1].length;
			yield frame(part++, at === members.length, JSON.stringify(members.slice(from, at)));
		} while (at < members.length);
	}
	/** Takes a frame of a topic's channel, or of the inbox. Returns false if it breaks a rule. */
	received(topic, { kind, fields, body }) {
		const [from = ""] = fields;
		if (!isNodeName(from)) return false;
		if (from === this.#node || !this.#output.noteSign(from)) return true;
		if (kind === Kind.Question) {
			this.#output.later(`m ${from} ${topic}`, this.#answer(from, topic, body));
			return true;
		}
		const number = wholeIn(fields[kind === Kind.Members ? 2 : 1]);
		if (number === void 0) return false;
		const known = this.#knownOf(topic, from);
		if (kind === Kind.Members) return known === void 0 || this.#answered(known, number, fields.slice(3), body);
		if (kind === Kind.Digest) {
			if (number === known?.number && known.ahead.length === 0) this.#confirm(known);
			else if (known !== void 0 && number > known.number) this.#miss(known);
			return true;
		}
		const before = wholeIn(fields[2]);
		const [, , , localId = ""] = fields;
		if (before === void 0 || !isNodeName(localId)) return false;
		if (known === void 0) return true;
		const change = {
			number,
			before,
			localId,
			as: kind === Kind.Joined ? body : void 0
		};
		if (known.ahead.length < MAX_AHEAD$1) known.ahead.push(change);
		this.#applyAhead(known);
		return true;
	}
	/** Returns what is known of a node in a followed topic. */
	#knownOf(topic, node) {
		const followed = this.#followed.get(topic);
		let known = followed?.known.get(node);
		if (followed !== void 0 && known === void 0) {
			known = {
				topic,
				followed,
				node,
				number: 0,
				members: /* @__PURE__ */ new Map(),
				ahead: [],
				parts: void 0,
				askedAt: void 0,
				repeatMs: REPEAT_MS
			};
			followed.known.set(node, known);
		}
		return known;
	}
	/** Changes of a node are missing. Asks it, unless it was asked. */
	#miss(known) {
		if (known.askedAt !== void 0) return;
		const { question } = known.followed;
		if (question !== void 0 && !question.answered.has(known.node)) this.#await(known);
		else this.#askNode(known);
	}
	/** Applies the changes that follow what is known. If one is missing, asks for the members. */
	#applyAhead(known) {
		const { ahead } = known;
		known.ahead = [];
		for (const change of ahead) {
			const { number, before, localId, as } = change;
			if (number <= known.number) continue;
			if (before !== known.number && before !== 0) {
				known.ahead.push(change);
				continue;
			}
			if (before === 0) this.#replace(known, number, /* @__PURE__ */ new Map());
			known.number = number;
			this.#set(known, localId, as);
		}
		if (known.ahead.length > 0) this.#miss(known);
		else this.#confirm(known);
	}
	#answered(known, number, [partField, isLast], body) {
		if (partField !== "") {
			const [part, entries] = [wholeIn(partField), entriesIn(body)];
			if (part === void 0 || entries === void 0) return false;
			const { parts } = known;
			if (!(part === 0 || parts?.number === number && parts.next === part)) return true;
			const members = part === 0 ? new Map(entries) : new Map([...parts.members, ...entries]);
			known.parts = isLast === "1" ? void 0 : {
				number,
				next: part + 1,
				members
			};
			if (isLast !== "1") return true;
			if (number > known.number) this.#replace(known, number, members);
		}
		if (partField === "" && number !== known.number) return true;
		if (number >= known.number) this.#applyAhead(known);
		this.#markAnswered(known);
		return true;
	}
	/** A node has answered, or will not. */
	#markAnswered({ followed, node }) {
		followed.question?.answered.add(node);
		this.#check(followed);
	}
	/** Another node has these members in a topic. Reports the difference. */
	#replace(known, number, members) {
		known.number = number;
		for (const localId of known.members.keys()) if (!members.has(localId)) this.#set(known, localId, void 0);
		for (const [localId, as] of members) this.#set(known, localId, as);
	}
	/** A member of another node joined, changed or left. */
	#set({ topic, followed, node, members }, localId, as) {
		const before = members.get(localId);
		if (before === as) return;
		if (as === void 0) members.delete(localId);
		else members.set(localId, as);
		if (followed.question === void 0) this.#output.changed(topic, as === void 0 ? "left" : "joined", node, localId, as ?? before);
	}
	/** A node has ended, or was given up: its members leave. */
	lost(node) {
		for (const followed of this.#followed.values()) {
			const known = followed.known.get(node);
			if (known === void 0) continue;
			this.#confirm(known);
			followed.known.delete(node);
			this.#replace(known, known.number, /* @__PURE__ */ new Map());
			this.#markAnswered(known);
		}
	}
	/** Returns how many members a followed topic has. */
	sizeOf(topic) {
		let size = this.#own.get(topic)?.members.size ?? 0;
		for (const { members } of this.#followed.get(topic)?.known.values() ?? []) size += members.size;
		return size;
	}
	has(topic, localId) {
		return this.#own.get(topic)?.members.has(localId) === true;
	}
	/** Yields the members of a followed topic. `as`: JSON. */
	*list(topic) {
		for (const [localId, as] of this.#own.get(topic)?.members ?? []) yield [
			this.#node,
			localId,
			as
		];
		for (const [node, { members }] of this.#followed.get(topic)?.known ?? []) for (const [localId, as] of members) yield [
			node,
			localId,
			as
		];
	}
};
function wholeIn(field) {
	return field !== void 0 && /^\d{1,15}$/.test(field) ? Number(field) : void 0;
}
var isEntry = (one) => Array.isArray(one) && one.length === 2 && isNodeName(String(one[0])) && typeof one[1] === "string";
function entriesIn(body) {
	const entries = parsed(body);
	return Array.isArray(entries) && entries.every(isEntry) ? entries : void 0;
}
var MAX_AHEAD = 1e3;
var MAX_AHEAD_LENGTH = 2 ** 20;
var Follower = class {
	#output;
	#position;
	/** Messages behind a missing one, by offset, or of another epoch. Without them, a busy log would be read again after each read. */
	#ahead = /* @__PURE__ */ new Map();
	#aheadEpoch = "";
	#aheadLength = 0;
	/** Whether a message was not kept. */
	#hasDropped = false;
	/** Whether the gap before the next entry was reported: another log began, and nothing of it was read. */
	#isGapReported = false;
	/** Whether all messages that are ahead came before the last request. */
	#isOld = false;
	constructor(output) {
		this.#output = output;
	}
	/** The last entry that was delivered or skipped; `undefined` until the top was read. Its epoch is empty if there is no log. */
	get position() {
		return this.#position;
	}
	/** Whether a message has shown that the log must be read. */
	get needsHeal() {
		return this.#ahead.size > 0 || this.#hasDropped;
	}
	/** Takes a message of the log's channel. */
	received(epoch, offset, body) {
		const position = this.#position;
		if (position === void 0) this.#keep(epoch, offset, body);
		else if (position.epoch === "" && offset === 1) this.#deliver({
			epoch,
			offset
		}, body);
		else if (position.epoch !== epoch || offset > position.offset + 1) this.#keep(epoch, offset, body);
		else if (offset === position.offset + 1) this.#deliver({
			epoch,
			offset
		}, body);
		this.#deliverAhead();
	}
	/** Keeps a message that cannot be delivered yet. */
	#keep(epoch, offset, body) {
		if (epoch !== this.#aheadEpoch) this.#dropAhead();
		this.#aheadEpoch = epoch;
		this.#isOld = false;
		if (this.#ahead.has(offset)) return;
		if (this.#ahead.size >= MAX_AHEAD || this.#aheadLength + body.length > MAX_AHEAD_LENGTH) this.#hasDropped = true;
		else {
			this.#ahead.set(offset, body);
			this.#aheadLength += body.length;
		}
	}
	#dropAhead() {
		this.#ahead.clear();
		this.#aheadLength = 0;
	}
	/** Delivers what follows the position, and forgets what was delivered. */
	#deliverAhead() {
		if (this.#ahead.size === 0 || this.#position?.epoch !== this.#aheadEpoch) return;
		for (let body; (body = this.#ahead.get(this.#position.offset + 1)) !== void 0;) this.#deliver({
			epoch: this.#aheadEpoch,
			offset: this.#position.offset + 1
		}, body);
		for (const [offset, body] of this.#ahead) {
			if (offset > this.#position.offset) continue;
			this.#ahead.delete(offset);
			this.#aheadLength -= body.length;
		}
	}
	/** Begins to read the log. Returns what is to be read. */
	request() {
		this.#hasDropped = false;
		this.#isOld = true;
		const { epoch, offset } = this.#position ?? {
			epoch: "",
			offset: 0
		};
		return {
			epoch,
			after: offset,
			onlyTop: this.#position === void 0
		};
	}
	/** Takes what was read for a request. Returns true if more must be read. */
	read(request, part) {
		let isAgain = false;
		if (request.onlyTop) this.#position = {
			epoch: part.epoch,
			offset: part.top
		};
		else if (part.epoch !== request.epoch) isAgain = this.#changeEpoch(request, part.epoch);
		else if (this.#position.epoch !== part.epoch) isAgain = true;
		else this.#catchUp(part);
		this.#deliverAhead();
		if (isAgain || part.epoch === this.#position.epoch && part.top > this.#position.offset) return true;
		if (this.#isOld) this.#dropAhead();
		return this.needsHeal;
	}
	/** F4: live messages may have moved the position since the request. The entries up to it were delivered. */
	#catchUp({ epoch, top, entries }) {
		for (const [offset, body] of entries) {
			if (offset > this.#position.offset + 1) this.#skipTo(offset - 1);
			if (offset > this.#position.offset) this.#deliver({
				epoch,
				offset
			}, body);
		}
		if (entries.length === 0 && top > this.#position.offset) this.#skipTo(top);
		this.#isGapReported = false;
	}
	/** F5. The entries of the part are of no use: they are those after an offset of the earlier epoch. */
	#changeEpoch(request, epoch) {
		const before = this.#position;
		if (before.epoch !== request.epoch) return true;
		this.#position = {
			epoch,
			offset: 0
		};
		this.#isGapReported = true;
		if (epoch === "") this.#output.gap("the log is gone");
		else this.#output.gap(before.epoch === "" ? "a log began unseen" : "another log began");
		return epoch !== "";
	}
	/** Skips entries that the log no longer has. */
	#skipTo(offset) {
		this.#position = {
			epoch: this.#position.epoch,
			offset
		};
		if (!this.#isGapReported) this.#output.gap("the log no longer has all entries");
	}
	#deliver(position, body) {
		this.#position = position;
		this.#isGapReported = false;
		this.#output.deliver(position, body);
	}
};
var RETRY_MS$1 = 1e3;
var GROWTH = 16;
var TAIL = {
	length: 64,
	bytes: 65536,
	ttlMs: Infinity
};
var TAILS_BYTES = 32 * 2 ** 20;
var TopicLog = class {
	#topic;
	#rule;
	#node;
	#tails;
	#follower;
	/** The heal in progress. */
	#healing;
	#isAskedAgain;
	/** Whether the entries that are delivered were read, and did not come as messages. */
	#isReading;
	#isStopped;
	/** The length of the next page: with 1, it has one entry. Without bytes, only the top is read, and what is before it is a gap. */
	#pageBytes;
	/** The clients for which the log is read next, and that read. */
	#replays;
	#replaying;
	/** `deliver`: takes the next publication. */
	constructor(topic, rule, node, tails, deliver) {
		this.deadline = 0;
		this.gaps = 0;
		this.#isAskedAgain = false;
		this.#isReading = false;
		this.#isStopped = false;
		this.#pageBytes = PAGE.bytes;
		this.#replaying = Promise.resolve();
		this.#topic = topic;
		this.#rule = rule;
		this.#node = node;
		this.#tails = tails;
		this.#follower = new Follower({
			deliver: (position, body) => {
				const publication = publicationOf(position, body);
				if (publication === void 0) node.counts.foreign++;
				tails.append(topic, position.offset, body, TAIL);
				if (this.#isReading) node.counts.healed++;
				if (publication !== void 0) deliver(publication);
			},
			gap: (reason) => {
				tails.drop(topic);
				this.gaps++;
				node.gap(topic, reason);
			}
		});
	}
	/** The last entry that this node has delivered; `undefined` until the top was read. */
	get position() {
		return this.#follower.position;
	}
	/** Returns true if this node has the log up to a position, or further. */
	#covers({ epoch, offset }) {
		return this.position?.epoch === epoch && offset <= this.position.offset;
	}
	/** Takes a message of the topic's channel. */
	received(epoch, offset, body) {
		this.#follower.received(epoch, offset, body);
		if (this.#follower.needsHeal && this.position !== void 0) this.heal();
	}
	/** Another node says that the log reaches a position. Reads it if this node does not have that (F3). */
	reaches(position) {
		if (!this.#covers(position)) this.heal();
	}
	/**
	* Resolves when the node follows the log, and has it up to `since` if the broker has. The channel must be subscribed. Rejects with an
	* `EngineError` if the log cannot be read.
	*/
	async follow(since) {
		if (this.position === void 0 || since !== void 0 && !this.#covers(since)) await this.#heal();
		if (this.position === void 0) throw new EngineError("the log is not followed any more", "not-sent");
	}
	/** Reads the log until this node has all of it (F3). Never rejects: without a connection, the log is read when it is restored. */
	async heal() {
		if (this.position === void 0) return;
		await this.#heal().catch(() => {});
	}
	expire() {
		this.heal();
	}
	stop() {
		this.#isStopped = true;
		clearDeadline(this);
		this.#tails.drop(this.#topic);
	}
	async #heal() {
		if (this.#isStopped) return;
		if (this.#healing !== void 0) this.#isAskedAgain = true;
		else this.#healing = this.#readAll().finally(() => this.#healing = void 0);
		try {
			await this.#healing;
		} catch (error) {
			if (this.#node.broker.isUp && !this.#isStopped && this.position !== void 0) setDeadline(this, RETRY_MS$1);
			throw error;
		}
	}
	async #readAll() {
		let isMore;
		do {
			this.#isAskedAgain = false;
			const request = this.#follower.request();
			const part = await this.#read(request.after, request.onlyTop ? 0 : PAGE.bytes);
			if (this.#isStopped) return;
			this.#isReading = true;
			isMore = this.#follower.read(request, part);
			this.#isReading = false;
		} while (isMore || this.#isAskedAgain);
	}
	/** Reads a page of at most so many bytes. */
	async #read(after, mostBytes) {
		const bytes2 = Math.min(this.#pageBytes, mostBytes);
		try {
			const part = await this.#node.read(this.#topic, after, {
				...PAGE,
				bytes: bytes2
			}, this.#rule);
			this.#pageBytes = Math.min(PAGE.bytes, Math.max(1, this.#pageBytes) * GROWTH);
			return part;
		} catch (error) {
			if (error.outcome === "unknown" && this.#node.broker.isUp) this.#pageBytes = this.#pageBytes > 1 ? 1 : 0;
			throw error;
		}
	}
	/**
	* Returns the publications after `since`, up to the present position. `undefined` if not all of them are there, or if they are too
	* long together. Rejects with an `EngineError` if the log cannot be read. Call it only when the log is followed.
	*/
	since(since) {
		const { offset: to } = this.position;
		if (!this.#covers(since)) return void 0;
		if (since.offset === to) return [];
		const begin = () => new Replay(since, to, this.#node.host.maxReplayLength);
		const recent = begin();
		recent.take({
			epoch: since.epoch,
			entries: this.#tails.read(this.#topic, since.offset, TAIL)
		});
		return recent.missed ?? this.#replay(begin());
	}
	/** Reads the log for a client, and for all others that come before that begins. */
	async #replay(replay) {
		if (this.#replays === void 0) {
			const replays = this.#replays = [];
			const read = () => {
				this.#replays = void 0;
				return this.#readFor(replays);
			};
			this.#replaying = this.#replaying.then(read, read);
		}
		this.#replays.push(replay);
		await this.#replaying;
		return replay.missed;
	}
	/** Reads page by page, from the first entry that one of the clients needs. What a client cannot get is not read for it. */
	async #readFor(replays) {
		for (let left = replays; left.length > 0; left = left.filter(({ outcome }) => outcome === void 0)) {
			const after = Math.min(...left.map(({ next }) => next)) - 1;
			const part = await this.#read(after, this.#node.host.maxReplayLength);
			for (const replay of left) replay.take(part);
		}
	}
};
var RETRY_MS = 1e3;
var ANSWERS_MS = 200;
var TICK_MS = 1e3;
var DIGESTS_MS = [
	1e3,
	1e4,
	6e4
];
var FleetTopic = class extends NodeTopic {
	/** Throws a `TypeError` for bad rules. */
	constructor(name, node, retry) {
		super(name, node.host, (reason) => node.gap(name, reason, []));
		this.channel = `t:${this.name}`;
		this.log = void 0;
		this.asking = void 0;
		this.following = void 0;
		this.joining = /* @__PURE__ */ new Map();
		this.retry = {
			deadline: 0,
			expire: () => retry(this)
		};
		const { connection, name: engine } = node.broker;
		if (this.logRule !== void 0 && connection.log === void 0) throw new TypeError(`the engine ${engine} has no logs, so the rule \`log\` cannot be met`);
	}
};
var FleetTopics = class extends NodeTopics {
	#node;
	#tails = new RecentEntries(TAILS_BYTES);
	#members;
	#said = /* @__PURE__ */ new Map();
	#tick = {
		deadline: 0,
		expire: () => this.#work()
	};
	#isTicking = false;
	constructor(node) {
		super();
		this.#node = node;
		const { broker } = node;
		this.#members = new Members(node.id, {
			send: (channel, frame) => broker.send(channel, frame),
			later: (key, frames) => broker.later(key, frames),
			noteSign: (other) => node.nodes.noteSign(other, performance.now()),
			changed: (topic, event, other, localId, as) => this.topics.get(topic)?.changed(event, memberOf(node.idOf({
				node: other,
				localId
			}), as)),
			asked: () => this.#wake()
		});
	}
	#wake() {
		if (this.#isTicking || this.isClosed) return;
		this.#isTicking = true;
		setDeadline(this.#tick, TICK_MS);
	}
	#work() {
		this.#isTicking = false;
		if (this.#members.tick(performance.now())) this.#wake();
	}
	/** Repeats the digests of these topics, behind other work. */
	#repeat(key, topics) {
		const { id: node, broker } = this.#node;
		const sendings = topics.map((topic) => {
			const { epoch = "", offset = "" } = this.#said.get(topic)?.position ?? {};
			return [`t:${topic}`, frameOf(Kind.Digest, [
				node,
				this.#members.numberOf(topic) ?? "",
				epoch,
				offset
			])];
		});
		broker.later(key, sendings.values());
	}
	/** This node has changed something of a topic. */
	#changed(topic, position) {
		if (this.isClosed) return;
		const said = this.#said.get(topic) ?? {
			deadline: 0,
			expire: () => this.#repeatSaid(topic),
			repeats: 0,
			position: void 0
		};
		this.#said.set(topic, said);
		if (!(position === void 0 || position.epoch === said.position?.epoch && position.offset < said.position.offset)) said.position = position;
		this.#begin(said);
	}
	#begin(said) {
		said.repeats = 0;
		setDeadline(said, DIGESTS_MS[0]);
	}
	#repeatSaid(topic) {
		if (!this.#node.broker.isUp) return;
		const said = this.#said.get(topic);
		this.#repeat(`said ${topic}`, [topic]);
		const [before, next] = DIGESTS_MS.slice(said.repeats++);
		if (next !== void 0) return setDeadline(said, next - before);
		this.#said.delete(topic);
		this.#members.forget(topic);
	}
	make(name) {
		return new FleetTopic(name, this.#node, (topic) => this.#keep(topic));
	}
	/** The application adds a peer. If the peer is being joined, it gets what was queued for it. */
	added(name, peer) {
		this.topics.get(name)?.joining.get(peer)?.[0]?.release();
	}
	/** A peer left, or shall not join. */
	left(name, peer) {
		for (const join of this.topics.get(name)?.joining.get(peer) ?? []) join.cancel();
		super.left(name, peer);
	}
	hide(name, peer) {
		for (const join of this.topics.get(name)?.joining.get(peer) ?? []) join.as = void 0;
		this.#hide(name, peer);
	}
	#hide(name, peer) {
		if (this.#members.remove(name, this.#node.addressOf(peer.id).localId)) this.#changed(name);
	}
	end(topic) {
		topic.log?.stop();
		clearDeadline(topic.retry);
		this.#members.unfollow(topic.name);
		this.#node.broker.release(topic.channel);
	}
	/** Subscribes, and then reads the top of the log and asks for the members. */
	begin(topic) {
		const { name } = topic;
		this.#node.broker.want(topic.channel);
		if (topic.logRule !== void 0) {
			const deliver = ({ method, text: text2 }) => this.#send(name, method, text2, topic.publicationOptions);
			topic.log = new TopicLog(name, topic.logRule, this.#node, this.#tails, deliver);
		}
		if (topic.memberRule !== void 0) this.#members.follow(name);
		this.#keep(topic);
	}
	/** Prepares a topic, and tries again if that fails although the connection is up. */
	#keep(topic) {
		clearDeadline(topic.retry);
		this.#prepare(topic).catch(() => {
			if (topic.uses > 0 && this.#node.broker.isUp) setDeadline(topic.retry, RETRY_MS);
		});
	}
	async #prepare(topic) {
		await this.#node.broker.ready(topic.channel);
		if (topic.uses > 0) await Promise.all([topic.log?.follow(), this.#know(topic)]);
	}
	/** The connection is up: what failed without it is done now. */
	up() {
		for (const said of this.#said.values()) this.#begin(said);
		for (const topic of this.topics.values()) this.#keep(topic);
	}
	/** Repeats the digests of all topics in which this node has members. */
	repeatAll() {
		this.#repeat("all", [...this.#members.ownTopics]);
	}
	/** Messages of these channels may have been missed: heals their logs, and asks for their members. */
	resubscribed(channels) {
		this.repeatAll();
		const topics = channels.flatMap((channel) => channel.startsWith("t:") && this.topics.get(channel.slice(2)) || []);
		this.#members.missed(topics.map(({ name }) => name));
		for (const { log } of topics) log?.heal();
	}
	lost(node) {
		this.#members.lost(node);
	}
	/** Takes a frame of a topic's channel. Returns false if it breaks a rule. */
	received(name, frame) {
		const topic = this.topics.get(name);
		const { kind, fields, body } = frame;
		switch (kind) {
			case Kind.Notify: {
				if (topic === void 0 || fields[0] === this.#node.id) return true;
				const notification = notificationIn(body);
				if (notification !== void 0) this.#send(name, notification.method, body, this.#node.optionsOf(fields));
				return notification !== void 0;
			}
			case Kind.Union: return this.ofUnion(frame);
			case Kind.Log: {
				const position = placeIn(fields[0], fields[1]);
				if (position === void 0 || position.offset === 0) return topic === void 0;
				topic?.log?.received(position.epoch, position.offset, body);
				return true;
			}
			case Kind.Digest: {
				const position = placeIn(fields[2], fields[3]);
				if (position !== void 0) topic?.log?.reaches(position);
				return fields[1] === "" || this.ofMembers(name, frame);
			}
			case Kind.Joined:
			case Kind.Left:
			case Kind.Question: return this.ofMembers(name, frame);
			default: return false;
		}
	}
	/** Takes a notification of another node to several topics. Returns false if it breaks a rule. */
	ofUnion({ fields, body }) {
		if (fields[0] === this.#node.id) return true;
		const end = body.indexOf("\n");
		const names = parsed(body.slice(0, end));
		if (!isNames(names)) return false;
		const [topics, excepted] = names;
		if (topics?.some((name) => this.topics.has(name)) === false) return true;
		const text2 = body.slice(end + 1);
		const notification = notificationIn(text2);
		if (notification === void 0) return false;
		const { host } = this.#node;
		const peers = topics === null ? host.peers : new Set(topics.flatMap((name) => [...host.membersOf(name)]));
		const options = this.#node.optionsOf(fields, excepted);
		host.send(peers, notification.method, text2, options);
		this.queue(topics ?? [], notification.method, text2, options);
		return true;
	}
	/** Takes a frame that concerns the members of a topic, of its channel or of the inbox. Returns false if it breaks a rule. */
	ofMembers(name, frame) {
		return this.#members.received(name, frame);
	}
	/** Sends a message to the members on this node, and to the peers that join. */
	#send(name, method, message, options) {
		this.#node.host.send(this.#node.host.membersOf(name), method, message, options);
		this.queue([name], method, message, options);
	}
	/** Queues a message to these topics for the peers that are about to join one of them and are in none, once for each. */
	queue(names, method, message, options) {
		const { host } = this.#node;
		const reached = /* @__PURE__ */ new Set();
		for (const name of names) for (const [peer, joins] of this.topics.get(name)?.joining ?? []) {
			if (reached.has(peer) || names.some((one) => host.membersOf(one).has(peer))) continue;
			if (joins[0].queue(method, message, options)) reached.add(peer);
		}
	}
	async enter(topic, peer, since, as) {
		const joins = topic.joining.get(peer) ?? [];
		topic.joining.set(peer, joins);
		const earlier = joins.at(-1);
		const join = new Join(peer, as, topic, this.#node.host);
		joins.push(join);
		if (earlier !== void 0) await earlier.settled;
		try {
			return await this.#join(topic, join, since);
		} finally {
			joins.shift();
			if (joins.length === 0) topic.joining.delete(peer);
			join.settle();
		}
	}
	async #join(topic, join, since) {
		const { broker } = this.#node;
		const { name, log } = topic;
		const { peer } = join;
		const localId = this.#node.addressOf(peer.id).localId;
		await broker.ready(topic.channel);
		await log?.follow(since);
		if (join.as !== void 0) await this.#know(topic);
		const { as } = join;
		if (as !== void 0) {
			if (!this.#members.has(name, localId)) topic.checkRoom(this.#members.sizeOf(name));
			join.checkPresent();
			if (this.#members.put(name, localId, as)) this.#changed(name);
		}
		try {
			return await join.enter(since);
		} catch (error) {
			if (as !== void 0 && !this.#node.host.membersOf(name).has(peer)) this.#hide(name, peer);
			throw error;
		} finally {
			if (join.refusedBytes > 0 && this.#node.host.membersOf(name).has(peer)) topic.missed(join.refusedBytes);
		}
	}
	async append(topic, { method, body, rule, key, timeoutMs }) {
		const { name } = topic;
		const { broker } = this.#node;
		const bytes2 = utf8Bytes(body) + HEAD_BYTES;
		const check = () => {
			const { maxFrameBytes = Infinity } = broker.facts ?? {};
			if (bytes2 > maxFrameBytes) throw new TooLargeError(method, bytes2, maxFrameBytes);
		};
		check();
		let isUnread = false;
		const append = async () => {
			check();
			isUnread = this.#isUnread(name);
			return broker.connection.log.append(name, body, rule, key);
		};
		try {
			const position = await broker.run(bytes2, timeoutMs, append, () => this.#untilFollowed(name));
			this.#changed(name, position);
			return position;
		} catch (error) {
			if (error.outcome === "not-sent") isUnread = false;
			throw error;
		} finally {
			if (isUnread) this.#node.gap(name, "a publication was logged before this node could read the log");
		}
	}
	/**
	* Resolves when this node follows the log of a topic, so that the members that were added before get the next publication too, or when
	* that has failed: then the publication is logged nevertheless, and is a gap. Returns the same promise until then, so that publications
	* keep their order. `undefined`: none need wait.
	*/
	#untilFollowed(name) {
		const topic = this.topics.get(name);
		if (topic === void 0 || topic.log.position !== void 0) return topic?.following;
		topic.following ??= this.#node.broker.ready(topic.channel).then(() => topic.log.follow()).catch(() => {}).finally(() => topic.following = void 0);
		return topic.following;
	}
	/** Returns true if the members of this node miss what is logged now, because the node does not follow the log yet. */
	#isUnread(name) {
		const log = this.topics.get(name)?.log;
		return log !== void 0 && log.position === void 0 && this.#node.host.membersOf(name).size > 0;
	}
	page(...question) {
		return this.#node.read(...question);
	}
	async list(topic, limit) {
		await this.#node.broker.ready(topic.channel);
		await this.#know(topic);
		return [...this.#members.list(topic.name)].slice(0, limit).map(([node, localId, as]) => memberOf(this.#node.idOf({
			node,
			localId
		}), as));
	}
	/** Asks the other nodes for their members in a topic that is subscribed, once. */
	async #know(topic) {
		if (topic.memberRule === void 0 || this.#members.isKnown(topic.name)) return;
		await (topic.asking ??= this.#ask(topic));
	}
	async #ask(topic) {
		const { name, channel } = topic;
		const { broker } = this.#node;
		const isUsed = () => this.topics.get(name) === topic;
		const timer = {
			deadline: 0,
			expire: () => this.#members.enough(name)
		};
		await new Promise((resolve) => {
			const frame = this.#members.ask(name, resolve);
			this.#node.questions.run(async () => {
				try {
					const count = await broker.now(() => broker.connection.send(channel, frame));
					if (count !== void 0 && isUsed()) this.#members.counted(name, count);
				} catch {
					this.#members.missed([name]);
				}
				if (isUsed() && !this.#members.isKnown(name)) setDeadline(timer, ANSWERS_MS);
			});
		});
		clearDeadline(timer);
	}
	close() {
		super.close();
		clearDeadline(this.#tick);
		for (const said of this.#said.values()) clearDeadline(said);
		for (const topic of this.topics.values()) this.end(topic);
		this.topics.clear();
	}
};
function isNames(value) {
	return Array.isArray(value) && (value[0] === null || isList(value[0])) && isList(value[1]);
}
function isList(value) {
	return Array.isArray(value) && value.every((name) => typeof name === "string");
}
function placeIn(epoch, offset = "") {
	return epoch === void 0 || epoch === "" ? void 0 : positionOf(`${epoch}.${offset}`);
}
var HEAD_BYTES = 256;
var SESSION_OVER_MS = 6e4;
var Fleet = class {
	#node;
	/** Whether `start` has resolved, with or without the broker. */
	#isStarted = false;
	/** What weakened a promise of the broker at the last connect. */
	#unmet = /* @__PURE__ */ new Set();
	#unmetReport = {
		deadline: 0,
		expire: () => this.#reportUnmet()
	};
	#downAt = performance.now();
	#closed;
	constructor(engine, host) {
		this.#node = new FleetNode(engine, host, {
			received: this.#received,
			up: () => this.#up(),
			down: (error) => this.#down(error),
			failed: (error) => host.report(error),
			resubscribed: (channels) => {
				this.topics.resubscribed(shuffled(channels));
				this.#reportSoon();
			},
			lost: (node, wasLive) => {
				if (wasLive) this.topics.lost(node);
				this.calls.lost(node);
			},
			forgotten: (node) => {
				this.topics.repeatAll();
				this.calls.lost(node, false);
			}
		});
		this.calls = new Calls(this.#node);
		this.principals = new Principals(this.#node);
		this.topics = new FleetTopics(this.#node);
	}
	get id() {
		return this.#node.id;
	}
	get own() {
		return this.#node.own;
	}
	async start(listen) {
		await this.#node.broker.open();
		await listen();
		this.#isStarted = true;
		this.#reportSoon();
	}
	/** Reports what is unmet a task later, so that an application that awaits the start has added its listener. */
	#reportSoon() {
		if (this.#isStarted && this.#closed === void 0) setDeadline(this.#unmetReport, 1);
	}
	/** Reports each setting that weakens a promise of the broker, once for as long as it does. */
	#reportUnmet() {
		const before = this.#unmet;
		this.#unmet = new Set(this.#node.broker.facts?.unmet);
		for (const sentence of this.#unmet) if (!before.has(sentence)) this.#node.host.report(new Error(sentence));
	}
	close() {
		return this.#closed ??= this.#close();
	}
	async #close() {
		clearDeadline(this.#unmetReport);
		this.calls.end();
		this.principals.end();
		this.topics.close();
		await this.#node.close();
	}
	get nodes() {
		const getLive = () => [...this.#node.nodes.live];
		return {
			id: this.id,
			get live() {
				return getLive();
			},
			notify: (method, params, options) => this.#notifyNodes(method, params, options)
		};
	}
	canHave(peer) {
		return isNodeName(this.#node.addressOf(peer.id).node);
	}
	notifyElsewhere(topics, method, text2, options) {
		if (topics !== void 0) this.topics.queue(topics, method, text2, options);
		const { except, whenSlow, volatile, latest, here } = options;
		if (here === true || topics?.length === 0) return;
		const fields = [
			this.id,
			except === void 0 ? "" : this.#node.elsewhere(except.peers).join(","),
			whenSlow === "close" ? "c" : "",
			volatile === true ? "v" : "",
			latest === void 0 ? "" : `=${latest}`
		];
		const isOne = topics?.length === 1;
		const excepted = except?.topics ?? [];
		const isUnion = excepted.length > 0 || topics !== void 0 && !isOne;
		const body = plainText(text2);
		this.#node.broker.send(isOne ? `t:${topics[0]}` : "a:all", isUnion ? frameOf(Kind.Union, fields, `${JSON.stringify([topics ?? null, excepted])}
${body}`) : frameOf(Kind.Notify, fields, body));
	}
	#notifyNodes(method, params, options) {
		refuseOptions(options);
		const body = plainText(encodeNotification$1(method, params));
		this.#node.broker.send("a:all", frameOf(Kind.Nodes, [this.id], body));
	}
	tokenOf(random) {
		return `${this.id}.${random}`;
	}
	sessionOver(token, hash, principal) {
		const { node } = this.#node.addressOf(token);
		if (!isNodeName(node) || node === this.id) return void 0;
		const frame = frameOf(Kind.SessionOver, [
			this.id,
			hash,
			principal === void 0 ? "" : "p",
			principal ?? ""
		]);
		const { nodes, reports } = this.#node;
		const isReceived = (count = 1) => count > 0 || !nodes.live.has(node);
		return () => void reports.send(`n:${node}`, () => frame, SESSION_OVER_MS, isReceived);
	}
	stats() {
		const { broker, counts, nodes } = this.#node;
		return {
			...counts,
			...broker.counts,
			pendingBytes: broker.pendingBytes,
			nodes: nodes.live.size
		};
	}
	health() {
		const { nodes, leaseMs } = this.#node;
		const lagMs = nodes.lagMs(performance.now());
		const { isUp } = this.#node.broker;
		return {
			ok: isUp && (lagMs ?? 0) < leaseMs,
			engine: isUp ? "up" : "down",
			lagMs
		};
	}
	#up() {
		this.#node.nodes.connected();
		this.#node.beat();
		this.topics.up();
		this.#node.answers.up();
		this.#node.reports.up();
		this.#node.closes.up();
		if (!this.#isStarted) return;
		this.#node.host.changed({
			state: "up",
			downMs: performance.now() - this.#downAt
		});
		this.#reportSoon();
	}
	#down(error) {
		this.#downAt = performance.now();
		this.#node.host.changed({
			state: "down",
			downMs: 0,
			error
		});
	}
	#received = (channel, text2) => {
		const { broker, counts, isClosed } = this.#node;
		if (isClosed) return;
		counts.received++;
		const { maxFrameBytes = Infinity } = broker.facts ?? {};
		const frame = text2.length <= maxFrameBytes ? readFrame(text2) : void 0;
		const isTopic = channel.startsWith("t:");
		if (!(frame !== void 0 && (isTopic ? this.topics.received(channel.slice(2), frame) : this.#ofNode(frame)))) counts.foreign++;
	};
	/** Takes a frame of the inbox, or of the channel of all nodes. Returns false for an unknown one. */
	#ofNode(frame) {
		const { kind, fields, body } = frame;
		switch (kind) {
			case Kind.Notify:
			case Kind.One:
			case Kind.Nodes: {
				if (fields[0] === this.id) return true;
				const notification = notificationIn(body);
				if (notification !== void 0) this.#notified(frame, notification);
				return notification !== void 0;
			}
			case Kind.Principal:
			case Kind.PeersOf: return this.principals.received(frame);
			case Kind.SessionOver:
				this.#node.host.endSession(fields[1] ?? "", fields[2] === "p" ? fields[3] : void 0);
				return true;
			case Kind.Beat: return this.#node.nodes.received(fields, performance.now());
			case Kind.Union: return this.topics.ofUnion(frame);
			case Kind.Question:
			case Kind.Members: return this.topics.ofMembers(fields[1] ?? "", frame);
			default: return this.calls.received(frame);
		}
	}
	/** Takes a notification of another node: to one peer, to the application, or to all peers. */
	#notified({ kind, fields, body }, { method, params }) {
		const { host } = this.#node;
		const [from = "", localId = ""] = fields;
		if (kind === Kind.One) this.#node.peerAt(localId)?.notify(method, params);
		else if (kind === Kind.Notify) host.send(host.peers, method, body, this.#node.optionsOf(fields));
		else runReporting(() => host.nodeMethods.get(method)?.(params, { from }), (error) => host.report(error));
	}
};
var fleet = /* @__PURE__ */ Object.freeze({
	__proto__: null,
	Fleet
});
export { fleet };
