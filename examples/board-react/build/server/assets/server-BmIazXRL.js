// ../../dist/chunks/messages.js
var ParseError = -32700;
var InvalidRequest = -32600;
var MethodNotFound = -32601;
var InvalidParams = -32602;
var InternalError = -32603;
var RequestCancelled = -32800;
var NoSuchStream = -32001;
var TooManySubscriptions = -32006;
var RequestTooLarge = -32007;
var ResponseTooLarge = -32008;
var Busy = -32009;
var BatchTooLarge = -32010;
var TryAgainLater$1 = -32011;
var ErrorCode$1 = /* @__PURE__ */ Object.freeze({
	__proto__: null,
	BatchTooLarge,
	Busy,
	HandlerTimeout: -32013,
	InternalError,
	InvalidParams,
	InvalidRequest,
	MethodNotFound,
	NoSuchStream,
	ParseError,
	RequestCancelled,
	RequestTooLarge,
	ResponseTooLarge,
	TooManyCalls: -32012,
	TooManySubscriptions,
	TryAgainLater: TryAgainLater$1
});
function isAbort(error, reason) {
	try {
		if (error === reason || error instanceof Error && error.name === "AbortError") return true;
		return error instanceof ConnectionLostError && error.cause === reason;
	} catch {
		return false;
	}
}
var made = /* @__PURE__ */ new WeakSet();
function mistake(message) {
	const error = new TypeError(message);
	made.add(error);
	return error;
}
function expected(name, rule, value) {
	return mistake(`Expected \`${name}\` to be ${rule}, got ${show(value)}`);
}
function show(value) {
	if (typeof value === "function") return "a function";
	if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
	const text = `\`${String(value)}\``;
	return value === null || value === void 0 ? text : `${text} (${typeof value})`;
}
function notJson(what, remedy, key = "") {
	return mistake(`JSON cannot carry the ${what}${key === "" ? "" : ` \`${key}\``}: ${remedy}`);
}
var RpcError = class extends Error {
	constructor(code, message, data, options) {
		checkError(code, message);
		super(message, options);
		this.name = "RpcError";
		this.code = code;
		this.data = data;
	}
};
function checkError(code, message) {
	if (!Number.isInteger(code)) throw expected("code", "an integer", code);
	if (typeof message !== "string") throw expected("message", "a string", message);
}
function receivedError(method, code, message, data) {
	const error = Object.assign(new RpcError(code, message, data), { method });
	made.add(error);
	return error;
}
function isReceived(error) {
	return made.has(error) && error instanceof RpcError;
}
async function failed(reason, method) {
	await Promise.resolve();
	await Promise.resolve();
	throw shownAt(reason, method, failed);
}
async function afterFailed(value) {
	await Promise.resolve();
	await Promise.resolve();
	return value;
}
function shownAt(error, method, below) {
	const { captureStackTrace } = Error;
	const shown = Object(error);
	if (captureStackTrace && (made.has(shown) || shown.method === method || shown instanceof ProtocolError$1)) {
		const { name, message } = shown;
		const quoted = `"${String(method)}"`;
		const holder = {
			name,
			message: message.includes(quoted) ? message : `${quoted}: ${message}`,
			stack: ""
		};
		captureStackTrace(holder, below);
		shown.stack = holder.stack;
	}
	return error;
}
var TimeoutError = class extends Error {
	constructor(method, timeoutMs, outcome = "unknown") {
		super(`"${method}" was not ${outcome === "unknown" ? "answered" : "sent"} within ${timeoutMs} ms`);
		this.name = "TimeoutError";
		this.code = "TIMEOUT";
		this.method = method;
		this.timeoutMs = timeoutMs;
		this.outcome = outcome;
	}
};
var ConnectionLostError = class extends Error {
	constructor(method, outcome, cause) {
		super(outcome === "not-sent" ? `"${method}" was not sent: no connection` : `"${method}" may have run: the connection was lost`, { cause });
		this.name = "ConnectionLostError";
		this.code = "CONNECTION_LOST";
		this.outcome = outcome;
		this.method = method;
	}
};
var TooLargeError = class extends RangeError {
	constructor(method, bytes2, maxMessageBytes) {
		super(`The message with "${method}" has ${bytes2} bytes; the other side accepts ${maxMessageBytes}`);
		this.name = "TooLargeError";
		this.code = "TOO_LARGE";
		this.method = method;
		this.bytes = bytes2;
		this.maxMessageBytes = maxMessageBytes;
	}
};
var ProtocolError$1 = class extends Error {
	constructor(message, raw, options) {
		super(message, options);
		this.name = "ProtocolError";
		this.code = "PROTOCOL";
		this.raw = raw;
	}
};
function classify(value) {
	if (typeof value !== "object" || value === null || Array.isArray(value)) return "invalid";
	const { jsonrpc, id, method, params, result, error } = value;
	if (method === void 0) {
		if (result !== void 0 && error === void 0 && jsonrpc === "2.0" && isId(id)) return "response";
		if (result !== void 0 || error !== void 0 || id !== void 0 && params === void 0) return brokenRule(value) === void 0 ? "response" : "broken";
	}
	if (jsonrpc !== "2.0" || typeof method !== "string") return "invalid";
	if (params !== void 0 && (typeof params !== "object" || params === null)) return "invalid";
	if (id === void 0) return "notification";
	return isId(id) ? "request" : "invalid";
}
function isId(id) {
	if (typeof id === "number") return Number.isInteger(id) ? Number.isSafeInteger(id) : Number.isFinite(id);
	return typeof id === "string" || id === null;
}
function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}
function member(value, name, place = -1) {
	if (Array.isArray(value)) return value[place];
	return isObject(value) && Object.hasOwn(value, name) ? value[name] : void 0;
}
function isLoneId({ id, method, params, result, error }) {
	return id !== void 0 && id !== null && [
		method,
		params,
		result,
		error
	].every((one) => one === void 0);
}
function idOf(value) {
	const id = isObject(value) ? value.id : void 0;
	return isId(id) ? id : null;
}
function isErrorObject(error) {
	if (!isObject(error)) return false;
	const { code, message } = error;
	return Number.isInteger(code) && typeof message === "string";
}
function isInternalMethod(method) {
	return method.startsWith("rpc.");
}
function parse(text) {
	try {
		return JSON.parse(text);
	} catch {
		return;
	}
}
function brokenResponse(raw) {
	return new ProtocolError$1(`malformed response: ${brokenRule(raw)}`, raw);
}
function brokenRule({ jsonrpc, id, result, error }) {
	if (jsonrpc !== "2.0") return "`jsonrpc` is not \"2.0\"";
	if (!isId(id)) return "`id` is invalid";
	if (error === void 0 || error === null) return result === void 0 ? "no `result` or `error`" : void 0;
	if (result !== void 0) return "both `result` and `error`";
	return isErrorObject(error) ? void 0 : "`error` needs integer `code` and string `message`";
}
function checkOptions(what, given = {}, table) {
	checkKnown(what, given, table);
	const prefix = what === "options" ? "" : `${what}.`;
	const checked = {};
	for (const name in table) checked[name] = table[name](given[name], prefix + name);
	return checked;
}
function checkKnown(what, given, known) {
	if (!isObject(given)) throw expected(what, "an object", given);
	for (const name of Object.keys(given)) if (!Object.hasOwn(known, name)) throw mistake(`Unknown name \`${name}\` in \`${what}\`; known are ${Object.keys(known).join(", ")}`);
}
function must(rule, isValid) {
	return (value, name) => {
		if (isValid(value)) return value;
		throw expected(name, rule, value);
	};
}
function secret(rule, isValid) {
	return (value, name) => {
		if (isValid(value)) return value;
		throw new TypeError(`Expected \`${name}\` to be ${rule}`);
	};
}
function oneOf(...values) {
	return must(values.map((value) => JSON.stringify(value)).join(" or "), (value) => values.includes(value));
}
function optional(check, defaultValue) {
	return (value, name) => value === void 0 ? defaultValue : check(value, name);
}
function shape(table) {
	return (value, name) => {
		for (const key in table) table[key](value?.[key], `${name}.${key}`);
		return value;
	};
}
var any = (value) => value;
var anyString = /* @__PURE__ */ must("a string", (value) => typeof value === "string");
var positive = /* @__PURE__ */ must("a positive number", (value) => typeof value === "number" && value > 0);
var finite = /* @__PURE__ */ must("a finite positive number", (value) => Number.isFinite(value) && value > 0);
var anyFunction = /* @__PURE__ */ must("a function", (value) => typeof value === "function");
var anySignal = /* @__PURE__ */ must("an AbortSignal", isSignal);
function isWellFormed(text) {
	return !/\p{Cs}/u.test(text);
}
function isSignal(value) {
	const { aborted, addEventListener, removeEventListener } = value ?? {};
	const areFunctions = [addEventListener, removeEventListener].every((one) => typeof one === "function");
	return typeof aborted === "boolean" && areFunctions;
}
function tableOf(given, name, check) {
	if (!isPlain(given)) throw expected(name, "a plain object", given);
	const entries = /* @__PURE__ */ new Map();
	for (const [key, value] of Object.entries(given)) if (value !== void 0) entries.set(key, check(value, `${name}.${key}`));
	return entries;
}
function isPlain(value) {
	if (typeof value !== "object" || value === null) return false;
	const proto = Object.getPrototypeOf(value);
	return proto === null || Object.getPrototypeOf(proto) === null;
}
function observed(promise) {
	promise.catch(() => {});
	return promise;
}
function promised(run) {
	return observed(new Promise((resolve) => resolve(run())));
}
function isThenable(value) {
	if (value instanceof Promise) return true;
	return typeof value === "object" && value !== null && typeof value.then === "function";
}
function synchronous(value, name) {
	if (!isThenable(value)) return value;
	observed(Promise.resolve(value));
	throw new TypeError(`${name} must be synchronous, and it returned a promise`);
}
function isStreamed(value) {
	if (typeof value !== "object" || value === null) return false;
	return Symbol.asyncIterator in value || "getReader" in value && typeof value.getReader === "function" || Symbol.iterator in value && "next" in value && typeof value.next === "function";
}
var { Buffer: Buffer$1 } = globalThis;
var OPEN = "{\"jsonrpc\":\"2.0\",";
var stringifyWithBytes$1;
function collectBytes(collector) {
	stringifyWithBytes$1 = collector;
}
function plainText(text) {
	return typeof text === "string" ? text : text.text;
}
function sentForm(text, takesBytes, encoded) {
	return typeof text === "string" || takesBytes && text.fitsFrame ? text : (encoded ?? text).text;
}
function joinTexts(before, texts, after) {
	const one = texts.find((text) => typeof text !== "string");
	return one === void 0 ? before + texts.join(",") + after : one.join(before, texts, after);
}
function enclose(before, json, after) {
	return typeof json === "string" ? before + json + after : json.withJson(before + json.json + after);
}
function encodeRequest$1(id, method, params) {
	return encodeCall(`${OPEN}"id":${encodeId(id)},`, method, params);
}
function encodeNotification$1(method, params) {
	return encodeCall(OPEN, method, params);
}
function encodeResult$1(id, result) {
	return encodeRawResult(id, stringify(result) ?? "null");
}
function encodeRawResult(id, json) {
	return enclose(`${OPEN}"id":${encodeId(id)},"result":`, json, "}");
}
function encodeError$1(id, { code, message, data }) {
	checkError(code, message);
	const json = stringify(data);
	const head = `${OPEN}"id":${encodeId(id)},"error":{"code":${code},"message":${JSON.stringify(message)}`;
	return json === void 0 ? `${head}}}` : enclose(`${head},"data":`, json, "}}");
}
function isNamelessError(text) {
	return plainText(text).startsWith(`${OPEN}"id":null,"error":`);
}
function encodeId(id) {
	return typeof id === "number" ? String(id) : JSON.stringify(id);
}
function encodeCall(before, method, params) {
	if (typeof method !== "string") throw expected("method", "a string", method);
	const name = JSON.stringify(method);
	if (params === void 0) return `${before}"method":${name}}`;
	const text = stringify(params);
	const json = typeof text === "object" ? text.json : text;
	const isPlain2 = typeof params === "object" && params !== null && (Array.isArray(params) || Object.getPrototypeOf(params) === Object.prototype) && !("toJSON" in params);
	if (json !== void 0 && (isPlain2 || json[0] === "[" || json[0] === "{")) return enclose(`${before}"method":${name},"params":`, text, "}");
	throw expected("params", "an array or an object", typeof params === "object" && params !== null && json !== void 0 ? JSON.parse(json) : params);
}
function stringify(value) {
	checkForms(value);
	return (stringifyWithBytes$1 ?? messageJson)(value);
}
var isForMessage = false;
function messageJson(value, replacer) {
	const outer = isForMessage;
	isForMessage = true;
	try {
		return JSON.stringify(value, replacer);
	} finally {
		isForMessage = outer;
	}
}
function shownAs(shown, what, remedy, key) {
	if (isForMessage) throw notJson(what, remedy, key);
	return shown;
}
function checkForms(value) {
	if (typeof value !== "object" || value === null) return;
	if (Array.isArray(value)) {
		const length = Math.min(value.length, MOST_ENTRIES);
		for (let i = 0; i < length; i++) if (typeof value[i] === "object") checkForm(value[i], i, value);
	} else {
		checkForm(value);
		for (const key in value) if (typeof value[key] === "object") checkForm(value[key], key, value);
	}
}
var MOST_ENTRIES = 100;
function checkForm(value, key, parent) {
	if (typeof value !== "object" || value === null) return;
	const proto = Object.getPrototypeOf(value);
	if (proto === Object.prototype || proto === Array.prototype) return;
	const { toJSON, [Symbol.toStringTag]: tag = "promise" } = value;
	const remedy = remedyFor(value, String(tag));
	if (remedy === void 0) return;
	if (toJSON !== void 0 && toJSON !== Buffer$1?.prototype.toJSON) return;
	if (parent !== void 0 && ("toJSON" in parent || !Object.hasOwn(parent, key))) return;
	for (const one of [value, ...Object.values(parent ?? [])]) if (one instanceof Promise) observed(one);
	throw notJson(value instanceof Error ? value.name : String(tag), remedy, key);
}
function remedyFor(value, tag) {
	if (ArrayBuffer.isView(value) || tag.endsWith("ArrayBuffer")) return "write `bytes(it)`";
	if (tag === "Map" || tag === "Set") return "write `[...it]`";
	if (tag === "Blob" || tag === "File") return "write `peer.offer(it.stream())`";
	if (value instanceof Error) return "throw it, or write `it.message`";
	return typeof value.then === "function" ? "await it" : void 0;
}
function encodeTooLarge(id, maxReplyBytes) {
	return encodeError$1(id, {
		code: ResponseTooLarge,
		message: "Response is too large",
		data: { maxReplyBytes }
	});
}
function exceeds(text, maxBytes) {
	return text.length > maxBytes || text.length * 3 > maxBytes && utf8Bytes(text) > maxBytes;
}
function utf8Bytes(text) {
	if (typeof text !== "string") return text.frame.length;
	return Buffer$1 === void 0 ? encodedBytes(text) : Buffer$1.byteLength(text);
}
function encodedBytes(text) {
	return new TextEncoder().encode(text).length;
}
var lspCancel = {
	method: "$/cancelRequest",
	params: (id) => ({ id }),
	idOf(params) {
		const id = member(params, "id", 0);
		return isId(id) ? id : void 0;
	},
	isAnswered: true
};
function isExempt({ cancel }, method) {
	return cancel.exempt?.includes(method) === true;
}
var LONGEST_TOKEN$1 = 1024;
function isLongToken(token) {
	const text = typeof token === "string" ? token : JSON.stringify(token);
	return text !== void 0 && text.length > 1024;
}
function tokenFrom(value) {
	return typeof value === "string" || typeof value === "number" ? value : void 0;
}
var MOST_ATTACHMENTS = 4096;
var HEAD_BYTES$1 = 4;
var PLACEHOLDERS = /"(\d{20}-\d+)"(?!:)/g;
var MarkedBytes = class {
	constructor(view) {
		this.view = view;
	}
	/** Returns the placeholder in a message, and base64 in any other JSON. */
	toJSON() {
		const { view } = this;
		if (collected === void 0) return toBase64(view);
		collected ??= {
			mark: String(crypto.getRandomValues(/* @__PURE__ */ new BigUint64Array(1))[0]).padStart(20, "0"),
			views: /* @__PURE__ */ new Map()
		};
		const placeholder = `${collected.mark}-${collected.views.size}`;
		collected.views.set(placeholder, view);
		return placeholder;
	}
};
var collected;
function stringifyWithBytes(value) {
	const outer = collected;
	collected = null;
	let json;
	let views;
	try {
		json = messageJson(value);
		views = collected?.views;
	} finally {
		collected = outer;
	}
	if (json === void 0 || views === void 0) return json;
	if (new Set(json.match(PLACEHOLDERS)?.filter((text) => views.has(text.slice(1, -1)))).size < views.size) throw mistake("a `toJSON` encoded `bytes` apart from the message that contains it");
	return new TextWithBytes(json, views);
}
var TextWithBytes = class TextWithBytes {
	#views;
	#frame;
	#isKept = false;
	constructor(json, views) {
		this.json = json;
		this.#views = views;
		this.length = json.length;
		for (const view of views.values()) this.length += view.length;
	}
	/** Returns the same bytes in other JSON, in which each placeholder occurs. */
	withJson(json) {
		return new TextWithBytes(json, this.#views);
	}
	/** Returns those of the bytes whose placeholders occur in other JSON, in that JSON. */
	rewritten(json) {
		return new TextWithBytes(json, new Map([...this.#views].filter(([placeholder]) => json.includes(placeholder))));
	}
	/** Returns texts, which may have bytes, joined with commas between `before` and `after`. */
	join(before, texts, after) {
		const views = texts.flatMap((text) => typeof text === "string" ? [] : [...text.#views]);
		const json = texts.map((text) => typeof text === "string" ? text : text.json).join(",");
		return new TextWithBytes(before + json + after, new Map(views));
	}
	/** Copies the views, unless the frame has copied them, so that the application may change its own. */
	keep() {
		if (this.#frame !== void 0 || this.#isKept) return;
		this.#isKept = true;
		this.#views = new Map([...this.#views].map(([place, view]) => [place, view.slice()]));
	}
	/** Only the JSON, with the bytes as base64. */
	get text() {
		const views = this.#views;
		return this.json.replace(PLACEHOLDERS, (text, place) => {
			const view = views.get(place);
			return view === void 0 ? text : `"${toBase64(view)}"`;
		});
	}
	/** Whether the bytes can be sent in a binary frame. */
	get fitsFrame() {
		return this.#views.size <= MOST_ATTACHMENTS;
	}
	/** The content of a binary frame: the length of its JSON, the JSON `[attachments, message]`, and the bytes of the attachments. */
	get frame() {
		return this.#frame ??= this.#encode();
	}
	#encode() {
		const views = this.#views;
		let size = HEAD_BYTES$1;
		const attachments = Array.from(views, ([place, { length }]) => {
			size += length;
			return `"${place}",${length}`;
		});
		const json = new TextEncoder().encode(`[[${attachments.join(",")}],${this.json}]`);
		const frame = allocate(size + json.length);
		new DataView(frame.buffer, frame.byteOffset).setUint32(0, json.length);
		frame.set(json, HEAD_BYTES$1);
		let at = HEAD_BYTES$1 + json.length;
		for (const view of views.values()) {
			frame.set(view, at);
			at += view.length;
		}
		return frame;
	}
};
function readFrame(frame) {
	const { length } = frame;
	const end = length < HEAD_BYTES$1 ? Infinity : HEAD_BYTES$1 + new DataView(frame.buffer, frame.byteOffset).getUint32(0);
	if (end > length) return void 0;
	let parsed;
	try {
		parsed = JSON.parse((utf8$1 ??= new TextDecoder("utf-8", {
			fatal: true,
			ignoreBOM: true
		})).decode(frame.subarray(HEAD_BYTES$1, end)));
	} catch {
		return;
	}
	if (!Array.isArray(parsed) || parsed.length !== 2) return void 0;
	const [list, message] = parsed;
	if (!Array.isArray(list) || list.length > 2 * MOST_ATTACHMENTS) return void 0;
	const attachments = /* @__PURE__ */ new Map();
	let at = end;
	for (let i = 0; i < list.length; i += 2) {
		const [place, size] = [list[i], list[i + 1]];
		if (typeof place !== "string" || attachments.has(place) || !isCount$2(size)) return void 0;
		if (size > length - at) return void 0;
		attachments.set(place, viewOf(frame, at, size));
		at += size;
	}
	return at === length && typeof message === "object" && message !== null && placeAll(message, attachments) ? message : void 0;
}
function isCount$2(value) {
	return Number.isSafeInteger(value) && value >= 0;
}
function placeAll(message, attachments) {
	const holders = [message];
	const visit = (holder, key) => {
		const value = holder[key];
		if (typeof value === "object" && value !== null) holders.push(value);
		const view = typeof value === "string" ? attachments.get(value) : void 0;
		if (view === void 0) return;
		attachments.delete(value);
		Object.defineProperty(holder, key, {
			value: view,
			writable: true,
			enumerable: true,
			configurable: true
		});
	};
	for (let holder; attachments.size > 0 && (holder = holders.pop()) !== void 0;) if (Array.isArray(holder)) for (let i = 0; i < holder.length; i++) visit(holder, i);
	else for (const key of Object.keys(holder)) visit(holder, key);
	return attachments.size === 0;
}
function viewOf({ buffer, byteOffset }, start, length) {
	const view = new Uint8Array(buffer, byteOffset + start, length);
	return length * 2 < buffer.byteLength ? view.slice() : view;
}
var bytes = /* @__PURE__ */ Object.assign(mark, {
	read: readFrame,
	parts: partsOf
});
function mark(view) {
	const marked = new MarkedBytes(uint8ArrayOf(view));
	collectBytes(stringifyWithBytes);
	return marked;
}
function* partsOf({ buffer, byteOffset, byteLength }, most) {
	let at = 0;
	do {
		const length = Math.min(byteLength - at, most);
		yield mark(new Uint8Array(buffer, byteOffset + at, length));
		at += length;
	} while (at < byteLength);
}
function bytesOf(value) {
	if (value instanceof MarkedBytes) return value.view;
	if (ArrayBuffer.isView(value)) return uint8ArrayOf(value);
	if (typeof value === "string" && value.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(value.replace(/={1,2}$/, ""))) return fromBase64(value);
	throw expected("value", "a Uint8Array or a base64 string", value);
}
function uint8ArrayOf(view) {
	if (ArrayBuffer.isView(view)) return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
	if (/^\[object (Shared)?ArrayBuffer]$/.test(Object.prototype.toString.call(view))) return new Uint8Array(view);
	throw expected("view", "an ArrayBuffer or a view of one", view);
}
var utf8$1;
function buffers() {
	return globalThis.Buffer;
}
function allocate(size) {
	const node = buffers();
	return node === void 0 ? new Uint8Array(size) : new Uint8Array(node.allocUnsafeSlow(size).buffer);
}
var PART_BYTES$1 = 24576;
function toBase64({ buffer, byteOffset, length }) {
	const node = buffers();
	if (node !== void 0) return node.from(buffer, byteOffset, length).toString("base64");
	let text = "";
	for (let at = 0; at < length; at += PART_BYTES$1) {
		const part = new Uint8Array(buffer, byteOffset + at, Math.min(PART_BYTES$1, length - at));
		text += btoa(String.fromCharCode(...part));
	}
	return text;
}
function fromBase64(text) {
	const node = buffers();
	if (node === void 0) return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
	const padding = text.endsWith("==") ? 2 : Number(text.endsWith("="));
	const view = new Uint8Array(text.length / 4 * 3 - padding);
	node.from(view.buffer, 0, view.length).write(text, "base64");
	return view;
}
function progressParams(token, value) {
	return {
		token,
		value: value ?? null
	};
}
function readProgress(params) {
	const token = tokenFrom(member(params, "token", 0));
	return token === void 0 ? void 0 : {
		token,
		value: member(params, "value", 1)
	};
}
var lsp = {
	name: "lsp",
	readsNullParams: true,
	cancel: lspCancel,
	progress: {
		method: "$/progress",
		tokenIn: (params) => tokenFrom(member(params, "workDoneToken")) ?? tokenFrom(member(params, "partialResultToken")),
		withToken: (params, workDoneToken) => ({
			...params,
			workDoneToken
		}),
		params: progressParams,
		read: readProgress
	}
};
var MOST_ISSUES = 100;
var MOST_CHARACTERS = 300;
function isSchema(value) {
	return typeof value?.["~standard"]?.validate === "function";
}
function paramsCheck(schemas) {
	return (method, params, accept) => {
		const schema = schemas.get(method);
		return schema === void 0 ? accept(params) : validate(schema, params, accept);
	};
}
function fitSchemas({ schemas, methods, fallback }) {
	if (schemas === void 0) return void 0;
	const table = tableOf(schemas, "schemas", must("a Standard Schema", isSchema));
	if (fallback === void 0) checkKnown("schemas", Object.fromEntries(table), Object.fromEntries(methods));
	return paramsCheck(table);
}
function validate(schema, params, accept) {
	const judge = (result2) => {
		if (result2.issues === void 0) return accept(result2.value);
		const issues = result2.issues.slice(0, MOST_ISSUES).map(plain$1);
		throw new RpcError(InvalidParams, describeIssue("Invalid params", issues[0]), { issues });
	};
	const result = schema["~standard"].validate(params);
	return isThenable(result) ? Promise.resolve(result).then(judge) : judge(result);
}
function describeIssue(what, issue) {
	if (issue === void 0) return what;
	const { message, path = [] } = issue;
	const name = path.map((key) => typeof key === "number" ? `[${key}]` : `.${key}`).join("").replace(/^\./, "");
	return `${what}: ${message}${name === "" || message.startsWith(`${name} `) ? "" : ` at ${name}`}`.slice(0, MOST_CHARACTERS);
}
function plain$1({ message, path }) {
	if (path === void 0) return { message };
	return {
		message,
		path: path.map((part) => typeof part === "object" ? part.key : part).map((key) => typeof key === "symbol" ? String(key) : key)
	};
}
function checkEntry(entry, name) {
	const aSchema = optional(must("a Standard Schema", isSchema));
	const parts = checkOptions(name, entry, {
		params: aSchema,
		result: aSchema,
		stream: aSchema,
		progress: aSchema,
		meta: any
	});
	if (parts.result === void 0 || parts.stream === void 0) return parts;
	throw new TypeError(`\`${name}\` must not have both \`result\` and \`stream\``);
}
var NAMES = {
	result: "The result",
	progress: "A progress value",
	stream: "A value of the stream"
};
function contract(entries) {
	return {
		table: tableOf(entries, "contract", checkEntry),
		fit
	};
}
function fit(options) {
	const { contract: own, remote, check, around } = options;
	return {
		checkParams: own && checkOfParams(own.table, options),
		checks: check && {
			checkSent: checkOf(own?.table, false),
			checkReceived: checkOf(remote?.table, true)
		},
		around: around && ((call, next) => {
			call.meta = (call.context ? own : remote)?.table.get(call.method)?.meta;
			return around(call, next);
		})
	};
}
function checkOfParams(own, { methods: handlers, schemas, fallback }) {
	if (schemas !== void 0) throw new TypeError("`schemas` must not be given beside `contract`");
	checkKnown("methods", Object.fromEntries(handlers), Object.fromEntries(own));
	for (const name of fallback === void 0 ? own.keys() : []) if (!handlers.has(name)) throw expected(`methods.${name}`, "a function, as `contract` has that name", void 0);
	return paramsCheck(new Map(Array.from(own, ([name, { params = NO_PARAMS }]) => [name, params])));
}
function checkOf(table, isReceived2) {
	return (part, method, value) => {
		const entry = table?.get(method);
		const schema = entry?.[part] ?? (part === "result" && !isReceived2 && entry?.stream ? STREAM : void 0);
		if (schema === void 0) return value;
		const checkValue = (given) => {
			return validateAny(schema, given, isReceived2 && given === null ? [null, void 0] : [given], (issue) => {
				const message = describeIssue(`${NAMES[part]} of "${method}" does not fit its schema`, issue && plain$1(issue));
				return isReceived2 ? shownAt(new ProtocolError$1(message, given), method, checkValue) : new TypeError(message);
			});
		};
		if (part === "result") return isThenable(value) ? Promise.resolve(value).then(checkValue) : checkValue(value);
		return synchronous(checkValue(value), `The schema of \`${part}\` of "${method}"`);
	};
}
function validateAny(schema, value, [candidate, ...others], failureFor) {
	const readResult = ({ issues }) => {
		if (issues === void 0) return value;
		if (others.length === 0) throw failureFor(issues[0]);
		return validateAny(schema, value, others, () => failureFor(issues[0]));
	};
	const result = schema["~standard"].validate(candidate);
	return isThenable(result) ? Promise.resolve(result).then(readResult) : readResult(result);
}
var NO_PARAMS = { "~standard": { validate: () => ({ value: void 0 }) } };
var STREAM = { "~standard": { validate(value) {
	return isStreamed(value) || typeof value?.toJSON === "function" ? { value } : { issues: [{ message: "expected an async iterable" }] };
} } };
var LONGEST_DELAY_MS = 2 ** 31 - 1;
var setDeadline = setOwnTimer;
var clearDeadline = clearOwnTimer;
var ownTimers = 0;
function replaceTimers(set, clear, count2) {
	setDeadline = set;
	clearDeadline = clear;
}
function setOwnTimer(entry, delayMs, setTimer = setTimeout) {
	clearOwnTimer(entry);
	if (delayMs === Infinity) return;
	entry.deadline = performance.now() + delayMs;
	ownTimers++;
	startTimer(entry, delayMs, setTimer);
}
function startTimer(entry, delayMs, setTimer) {
	const timer = setTimer(() => {
		if (entry.timer !== timer) return;
		const now2 = performance.now();
		if (delayMs > LONGEST_DELAY_MS) startTimer(entry, delayMs - LONGEST_DELAY_MS, setTimer);
		else if (now2 - entry.deadline >= 50) {
			entry.deadline = now2;
			startTimer(entry, 0, setTimer);
		} else {
			clearOwnTimer(entry);
			entry.expire();
		}
	}, Math.min(delayMs, LONGEST_DELAY_MS));
	entry.timer = timer;
}
function clearOwnTimer(entry) {
	if (entry.timer === void 0) return;
	clearTimeout(entry.timer);
	entry.timer = void 0;
	ownTimers--;
}
function tell(emitter, event, args, failed2 = uncaught) {
	const listeners = emitter.listeners(event);
	for (const listener of listeners) {
		emitter.removeListener(event, listener, void 0, true);
		runReporting(() => listener.apply(emitter, args), failed2);
	}
	return listeners.length > 0;
}
function refuseUnknownEvents(prototype, known) {
	const methods = prototype;
	for (const name of [
		"on",
		"once",
		"addListener",
		"emit"
	]) {
		const inherited = methods[name];
		methods[name] = function(event, ...rest) {
			if (Object.hasOwn(known, event)) return inherited.call(this, event, ...rest);
			const names = Object.keys(known).join(", ");
			throw new TypeError(`Unknown event \`${String(event)}\`; known are ${names}. Methods are served in \`methods\`, and called by \`notify\``);
		};
	}
}
var MOST_WARNINGS = 1e3;
function warnOnce(warned, method, cause) {
	if (warned.has(method) || warned.size >= MOST_WARNINGS) return;
	warned.add(method);
	const warning = new Error(`"${method}" failed, and nothing listens for \`error\``, { cause });
	const { process, reportError } = globalThis;
	if (process?.emitWarning) process.emitWarning(Object.assign(warning, {
		name: "reciproc",
		detail: stackOf(cause)
	}));
	else reportError?.(warning);
}
function stackOf(error) {
	try {
		const { stack = String(error), cause } = Object(error);
		return cause instanceof Error ? `${stack}
[cause] ${cause.stack}` : stack;
	} catch {
		return "an error that cannot be shown";
	}
}
function runReporting(call, failed2) {
	try {
		const result = call();
		if (isThenable(result)) Promise.resolve(result).catch(failed2);
	} catch (error) {
		failed2(error);
	}
}
var aborting = /* @__PURE__ */ new WeakMap();
function onAbort(signal, listener) {
	let entry = aborting.get(signal);
	if (entry === void 0) {
		const all = /* @__PURE__ */ new Set();
		entry = {
			listeners: all,
			run: () => all.forEach((one) => runReporting(one, uncaught))
		};
		aborting.set(signal, entry);
	}
	const { listeners, run } = entry;
	if (listeners.add(listener).size === 1) signal.addEventListener("abort", run);
	return () => {
		if (listeners.delete(listener) && listeners.size === 0) signal.removeEventListener("abort", run);
	};
}
function uncaught(error) {
	queueMicrotask(() => {
		throw error;
	});
}
var Normal = 1e3;
var GoingAway = 1001;
var ProtocolError = 1002;
var NoStatus = 1005;
var Abnormal = 1006;
var PolicyViolation = 1008;
var MessageTooBig = 1009;
var TOO_LARGE = "message is too large";
var TryAgainLater = 1013;
var Superseded = 4e3;
var Expired = 4001;
var STANDARD = {
	[GoingAway]: Normal,
	[ProtocolError]: 4400,
	[PolicyViolation]: 4400,
	[MessageTooBig]: 4413,
	[TryAgainLater]: 4429
};
function toStandard(code) {
	return STANDARD[code] ?? code;
}
function fromHttpStatus(status) {
	return 4e3 + status;
}
function endsSession(code) {
	return code === 1002 || code === 1003 || code >= 1007 && code <= 1010 || code === 1013 || refusesClient(code);
}
function refusesClient(code) {
	return code >= 4400 && code < 4500;
}
function checkClose(code, reason) {
	if (code !== 1e3 && !(Number.isInteger(code) && code >= 3e3 && code <= 4999)) throw expected("code", "1000 or from 3000 to 4999", code);
	if (typeof reason !== "string") throw expected("reason", "a string", reason);
	return cutReason(reason);
}
function cutReason(reason) {
	if (reason.length <= 41) return reason;
	const encoder = new TextEncoder();
	let cut = "";
	for (const character of reason) {
		if (encoder.encode(cut + character).length > 123) break;
		cut += character;
	}
	return cut;
}
function endOf(info, own) {
	return [
		NoStatus,
		1006,
		toStandard(own.code)
	].includes(info.code) ? {
		...info,
		...own
	} : info;
}
function errorOfEnd(what, { code, reason, error }) {
	return error === void 0 ? /* @__PURE__ */ new Error(`${what} with ${code}${reason && ` (${reason})`}`) : error;
}
var VALUE_COST = 32;
var Frame = class {
	#length;
	#counter;
	#users = 0;
	/** `counter`: counts `length`, in UTF-16 code units, while the frame has users. */
	constructor(length, counter) {
		this.#length = length;
		this.#counter = counter;
	}
	/** Adds one user. */
	keep() {
		if (this.#users++ === 0) this.#counter.keeps(this.#length);
	}
	/** Removes one user. */
	drop() {
		if (--this.#users === 0) this.#counter.keeps(-this.#length);
	}
};
function addTraffic(a, b) {
	if (a === void 0 || b === void 0) return a ?? b;
	return {
		received: a.received + b.received,
		sent: a.sent + b.sent
	};
}
var EncodedFrame = class {
	constructor(content) {
		this.bytes = void 0;
		this.content = content;
	}
};
var OVERHEAD_BYTES$1 = 64;
function unsentBytesOf(source) {
	return utf8Bytes(source) * (typeof source === "string" ? 1 : 4 / 3) + OVERHEAD_BYTES$1;
}
var EncodedMessage = class {
	#text;
	#unsentBytes;
	#plain;
	#pack;
	#binary;
	constructor(source) {
		this.source = source;
	}
	/** The text, in which bytes are base64. */
	get text() {
		return this.#text ??= plainText(this.source);
	}
	get unsentBytes() {
		return this.#unsentBytes ??= unsentBytesOf(this.source);
	}
	/** The frame of a plain link. */
	get plain() {
		return this.#plain ??= new EncodedFrame(this.text);
	}
	/** A pack of this message only. */
	get pack() {
		return this.#pack ??= new EncodedFrame(`[${this.text}]`);
	}
	/** The binary frame of a message with bytes. */
	get binary() {
		return this.#binary ??= new EncodedFrame(this.source.frame);
	}
};
var List = class {
	constructor() {
		this.before = this;
		this.after = this;
	}
	get first() {
		return this.after === this ? void 0 : this.after;
	}
	/** Adds a member that is in no list. */
	add(member2) {
		member2.before = this.before;
		member2.after = this;
		this.before.after = member2;
		this.before = member2;
	}
	/** The members at this moment, of which `isWanted` may choose some. */
	toArray(isWanted) {
		const members = [];
		for (let member2 = this.after; member2 !== this; member2 = member2.after) if (isWanted?.(member2) !== false) members.push(member2);
		return members;
	}
};
function unlink(member2) {
	const { before, after } = member2;
	if (before === void 0) return false;
	before.after = after;
	after.before = before;
	member2.before = member2.after = void 0;
	return true;
}
var ROOM_FOR_PONGS = 65536;
var CLOSE_TIMEOUT_MS = 5e3;
var queued = [];
var { queueMicrotask: queueMicrotask$1 } = globalThis;
var now = Promise.resolve();
function atEndOfTick(task) {
	if (queued.push(task) === 1) now.then(endTick);
}
function endTick() {
	const due = queued;
	queued = [];
	for (const task of due) try {
		task();
	} catch (error) {
		uncaught(error);
	}
}
var count = 0;
var isCounted = false;
function currentTick() {
	if (!isCounted) {
		isCounted = true;
		now.then(countTick);
	}
	return count;
}
function countTick() {
	count++;
	isCounted = false;
}
var MOST_COALESCED = 8192;
var Coalescer = class {
	#buffer;
	#firstMessages;
	/** The tick of the newest message, and the number of messages in it. */
	#tick = -1;
	#count = 0;
	/** True if the buffer is flushed at the end of the tick. */
	#isScheduled = false;
	/** True if the tick with messages before that one had a single message. Then the first message of the tick is sent at once. */
	#wasSingle = false;
	/** `firstMessages`: the buffer is flushed after that many messages of a tick, and again whenever their number has doubled. */
	constructor(buffer, firstMessages) {
		this.#buffer = buffer;
		this.#firstMessages = firstMessages;
	}
	/**
	* Counts a message, with which the buffer has that `length`. Returns whether the caller sends it now, with the buffer. Otherwise, the
	* buffer is flushed at the end of the tick.
	*/
	added(length) {
		const tick = currentTick();
		if (this.#tick !== tick) {
			this.#tick = tick;
			this.#wasSingle = this.#count === 1;
			this.#count = 0;
		}
		const count2 = ++this.#count;
		if ((count2 === 1 ? this.#wasSingle : count2 >= this.#firstMessages && (count2 & count2 - 1) === 0) || length >= 8192) return true;
		this.schedule();
		return false;
	}
	/** Flushes the buffer at the end of the tick. */
	schedule() {
		if (this.#isScheduled) return;
		this.#isScheduled = true;
		atEndOfTick(() => {
			this.#isScheduled = false;
			this.#buffer.flush();
		});
	}
};
var HEARTBEAT_OPTIONS = {
	intervalMs: optional(finite, 25e3),
	deadAfterMs: optional(finite)
};
function checkHeartbeat(given = {}) {
	if (given === false) return void 0;
	const { intervalMs, deadAfterMs = intervalMs + 2e4 } = checkOptions("heartbeat", given, HEARTBEAT_OPTIONS);
	if (deadAfterMs > intervalMs) return {
		intervalMs,
		deadAfterMs
	};
	throw expected("heartbeat.deadAfterMs", `more than \`heartbeat.intervalMs\`, ${intervalMs}`, deadAfterMs);
}
var CHECKS$1 = 5;
var CHECK_MS$2 = 5e3;
var EARLY_MS = 1;
var Heartbeat = class {
	#pulse;
	#times;
	/** When the oldest ping was sent that is not answered. */
	#pingedAt;
	/** When the connection ends, if nothing comes until then. */
	#endAt;
	#checkedAt;
	#received;
	/** When a part of an incomplete message was last noticed. */
	#partAt;
	/** Starts. `random`, from 0 to 1, places the first check in the interval, so that connections of the same age ping at different times. */
	constructor(pulse, times, random2 = Math.random()) {
		this.deadline = 0;
		this.#pingedAt = Infinity;
		this.#endAt = Infinity;
		this.#checkedAt = performance.now();
		this.#pulse = pulse;
		this.#times = times;
		this.#received = pulse.traffic?.received;
		setDeadline(this, times.intervalMs / CHECKS$1 * (1 + Math.floor(random2 * CHECKS$1)));
	}
	/** Stops. */
	stop() {
		clearDeadline(this);
	}
	/** Pings now, after an event that may have ended the connection unnoticed. Ends the connection if nothing comes within 5 s. */
	check() {
		const now2 = performance.now();
		this.#lastReceivedAt(now2);
		if (now2 >= this.#endAt) this.#endAt = Infinity;
		this.#ping(now2, CHECK_MS$2);
		setDeadline(this, Math.min(this.#endAt - now2, this.#times.intervalMs / CHECKS$1));
	}
	/** Checks once. */
	expire() {
		const { intervalMs, deadAfterMs } = this.#times;
		const now2 = performance.now();
		const receivedAt = this.#lastReceivedAt(now2);
		if (now2 + EARLY_MS >= this.#endAt) return this.#pulse.dropSocket(`nothing was received for ${Math.round(now2 - receivedAt)} ms`);
		if (this.#endAt === Infinity && now2 - receivedAt >= intervalMs) this.#ping(now2, deadAfterMs - intervalMs);
		setDeadline(this, intervalMs / CHECKS$1);
	}
	#ping(now2, waitMs) {
		this.#pingedAt = Math.min(this.#pingedAt, now2);
		this.#endAt = Math.min(this.#endAt, now2 + waitMs);
		this.#pulse.ping();
	}
	/**
	* Returns when data last came, which answers each ping before it. A long message is reported only when it is complete, and no pong can
	* overtake it. So its bytes count too, at the check after they came.
	*/
	#lastReceivedAt(now2) {
		const { receivedAt = now2, traffic } = this.#pulse;
		if (traffic?.received !== this.#received && receivedAt < this.#checkedAt) this.#partAt = now2;
		this.#received = traffic?.received;
		this.#checkedAt = now2;
		const lastAt = Math.max(receivedAt, this.#partAt ?? receivedAt);
		if (lastAt >= this.#pingedAt) this.#pingedAt = this.#endAt = Infinity;
		return lastAt;
	}
};
function rateLimit(perSecond) {
	let left = perSecond;
	let filledAt = performance.now();
	return () => {
		const now2 = performance.now();
		left = Math.min(perSecond, left + (now2 - filledAt) / 1e3 * perSecond);
		filledAt = now2;
		if (left < 1) return false;
		left--;
		return true;
	};
}
var MINUTE_MS = 6e4;
function minuteCount() {
	let count2 = 0;
	let since = 0;
	return () => {
		const now2 = performance.now();
		if (count2 === 0 || now2 - since > MINUTE_MS) {
			since = now2;
			count2 = 0;
		}
		return ++count2;
	};
}
var Inbox = class {
	#handler;
	/** Frames and the end that came before `start`. Undefined once they are being delivered. */
	#queued = [];
	/** Called with the first of `#queued`. */
	#onFirst;
	#hasEnded = false;
	/** How the socket ended, or the close that was sent for a frame that was too long or by `discard`. Once set, no frame is delivered. */
	#ending;
	constructor(maxFrameBytes) {
		this.deadline = 0;
		this.maxFrameBytes = maxFrameBytes;
	}
	/** Delivers the queued frames to `handler` in a microtask, and then each frame as it comes. A later call replaces the handler. */
	start(handler) {
		const isFirst = this.#handler === void 0;
		this.#handler = handler;
		if (!isFirst) return;
		const queued2 = this.#queued;
		if (queued2.length === 0) this.#queued = void 0;
		else queueMicrotask$1(() => {
			this.#queued = void 0;
			this.deliver(queued2);
		});
	}
	/** Calls `listener` with the first frame that comes before `start`, or with the end. Unless it returns true, the frame is queued for `start`. */
	onFirstFrame(listener) {
		const [first] = this.#queued;
		if (first === void 0) this.#onFirst = listener;
		else if (listener(textOf$1(first))) this.#queued.shift();
	}
	/**
	* Takes a text or binary frame. `byteLength` is the length of a text in UTF-8, if known. Closes the socket with 1009 if the frame is too
	* long. A queued frame is measured when it is delivered, because `maxFrameBytes` may have been raised meanwhile.
	*/
	receiveFrame(frame, byteLength) {
		if (this.#ending !== void 0) return;
		if (this.#queued !== void 0) this.#enqueue(frame);
		else if (isTooLong$1(frame, byteLength, this.maxFrameBytes)) {
			this.#ending = {
				code: MessageTooBig,
				reason: TOO_LARGE
			};
			this.close(MessageTooBig, TOO_LARGE);
		} else if (typeof frame === "string") this.#handler.receiveFrame(frame);
		else if (this.#handler.receiveBinary?.(frame) !== true) this.#handler.receiveFrame(decodeFrame(frame));
	}
	/** Reports the end of the socket. Later calls do nothing. */
	end(info) {
		if (this.#hasEnded) return;
		this.#finish();
		if (this.#queued === void 0) this.#reportEnd(info);
		else this.#enqueue(info);
	}
	#reportEnd(info) {
		this.#ending = this.#ending === void 0 ? info : endOf(info, this.#ending);
		this.#handler?.closed(this.#ending);
	}
	#enqueue(item) {
		const isTaken = this.#onFirst?.(textOf$1(item));
		this.#onFirst = void 0;
		if (isTaken !== true) this.#queued.push(item);
	}
	/** Closes the socket, and reports nothing more. */
	discard(code, reason) {
		this.#ending = {
			code,
			reason
		};
		this.#finish();
		this.close(code, reason);
		this.#handler = void 0;
	}
	/** Makes the handler send its coalesced frames before a close. */
	flushHandler() {
		this.#handler?.flush?.();
	}
	#finish() {
		this.#hasEnded = true;
		if (this.deadline > 0) clearDeadline(this);
	}
	/**
	* Ends the socket with 1006 if its close does not complete within `CLOSE_TIMEOUT_MS`. On a dead network, most runtimes report
	* the end after 20 s or more, or never.
	*/
	limitClose() {
		if (!this.#hasEnded && this.deadline === 0) setDeadline(this, CLOSE_TIMEOUT_MS);
	}
	/** The close did not complete in time. */
	expire() {
		this.end({
			code: Abnormal,
			reason: ""
		});
	}
	/** Delivers queued frames, and the end after them. */
	deliver(items) {
		for (const item of items) if (isFrame(item)) this.receiveFrame(item);
		else this.#reportEnd(item);
	}
};
function isFrame(item) {
	return typeof item === "string" || item instanceof Uint8Array;
}
function isTooLong$1(frame, byteLength, maxBytes) {
	if (byteLength !== void 0) return byteLength > maxBytes;
	return typeof frame === "string" ? exceeds(frame, maxBytes) : frame.length > maxBytes;
}
function textOf$1(item) {
	return item instanceof Uint8Array ? decodeFrame(item) : item;
}
var utf8;
function decodeFrame(bytes) {
	try {
		return (utf8 ??= new TextDecoder("utf-8", { fatal: true })).decode(bytes);
	} catch {
		return "";
	}
}
var MAX_RETRY_MS = 6e5;
var LONGEST_TOKEN = 256;
var LIMITS = {
	maxMessageBytes: isPositive,
	logFrames: isPositive,
	logLength: isPositive
};
var SESSION = {
	token: isToken,
	ttlMs: isPositive,
	limits: LIMITS,
	route: (value) => value === void 0 || isToken(value)
};
var RESUME = {
	token: isToken,
	received: isCount$1,
	attempt: isPositive,
	limits: LIMITS,
	bytes: (value) => value === void 0 || value === true
};
var RESUMED = {
	token: isToken,
	received: isCount$1
};
var BYE = {
	code: (value) => isCount$1(value) && value >= 1e3 && value <= 4999,
	reason: (value) => typeof value === "string",
	retryMs: (value) => value === void 0 || isCount$1(value)
};
var limitsOf = (value) => read(value, LIMITS);
var sessionOf = (value) => read(value, SESSION);
var resumeOf = (value) => read(value, RESUME);
var resumedOf = (value) => read(value, RESUMED);
var byeOf = (value) => read(value, BYE);
var AUTH_HELLO = "{\"hello\":{\"auth\":true}}";
var ASK_AUTH = "{\"auth\":true}";
var AUTHENTICATED = "{\"authenticated\":true}";
var RESUME_REFUSED = "{\"resumed\":{\"refused\":\"unknown-session\"}}";
function serverHello(session, bytes) {
	return JSON.stringify({ hello: {
		session,
		bytes
	} });
}
function sessionlessHello(bytes) {
	return JSON.stringify({ hello: { bytes } });
}
function clientHello(limits, bytes) {
	return JSON.stringify({ hello: {
		session: true,
		limits: pickLimits(limits),
		bytes
	} });
}
function pickLimits({ maxMessageBytes, logFrames, logLength }) {
	return {
		maxMessageBytes,
		logFrames,
		logLength
	};
}
function helloOf(frame) {
	return contentOf(frame, "hello");
}
function pongFrame(value) {
	try {
		return JSON.stringify({ pong: value });
	} catch {
		return;
	}
}
function byeFrame({ code, reason, retryMs }) {
	return JSON.stringify({ bye: {
		code,
		reason,
		retryMs
	} });
}
function readBye(frame) {
	return byeOf(contentOf(frame, "bye"));
}
function contentOf(frame, name) {
	return frame.startsWith(`{"${name}":`) ? member(parse(frame), name) : void 0;
}
function says(hello, name) {
	return member(hello, name) === true;
}
function isCount$1(value) {
	return Number.isSafeInteger(value) && value >= 0;
}
function isPositive(value) {
	return Number.isSafeInteger(value) && value > 0;
}
function isToken(value) {
	return typeof value === "string" && value !== "" && value.length <= LONGEST_TOKEN && isWellFormed(value);
}
function read(value, checks) {
	if (!isObject(value)) return void 0;
	const copy = {};
	for (const name in checks) {
		const check = checks[name];
		const given = Object.hasOwn(value, name) ? value[name] : void 0;
		const item = typeof check === "function" ? given : read(given, check);
		if (typeof check === "function" ? !check(given) : item === void 0) return void 0;
		if (item !== void 0) copy[name] = item;
	}
	return copy;
}
var EARLY_FRAMES = 64;
var EARLY_LENGTH = 2 ** 18;
var NO_FRAMES = [];
var UNKNOWN_LIMITS = {
	maxMessageBytes: Infinity,
	logFrames: Infinity,
	logLength: Infinity
};
var Session = class {
	#limits;
	#log = NO_FRAMES;
	/** The number of the last frame that was written to any earlier wire. */
	#sentBefore = 0;
	#owedFrames = 0;
	#owedLength = 0;
	/** A client gives all of `offered`. */
	constructor(limits, offered) {
		this.#limits = limits;
		this.ttlMs = offered.ttlMs;
		this.token = offered.token;
		this.theirs = offered.limits;
		this.route = offered.route;
		this.received = this.last = this.logLength = this.resumeAttempts = 0;
		this.next = 1;
	}
	/** The number of frames that the other side has acknowledged. The log contains the later ones. */
	get acked() {
		return this.last - this.#log.length;
	}
	/**
	* True if a further frame may be numbered: the log has room, and the socket has all of its frames. Independent of that frame's length,
	* so that the longest frame fits into an empty log.
	*/
	get hasRoom() {
		const { logFrames, logLength } = this.#limits;
		return this.next > this.last && this.#log.length < logFrames && this.logLength < logLength;
	}
	/** True if a frame of the log waits for the present socket. */
	get hasUnsent() {
		return this.next <= this.last;
	}
	/** Gives `frame` the next number. */
	push(frame) {
		if (this.#log.length === 0) this.#log = [frame];
		else this.#log.push(frame);
		this.last++;
		this.logLength += frame.length;
	}
	/** Returns the next frame for the present socket, of those that wait, and counts it. */
	takeUnsent() {
		return this.#log[this.next++ - this.acked - 1];
	}
	/** Drops the first `count` frames. Does nothing for a smaller count than before, because two acks may cross. */
	ackTo(count2) {
		if (count2 <= this.acked) return;
		for (const frame of this.#log.splice(0, count2 - this.acked)) this.logLength -= frame.length;
		if (this.#log.length === 0) this.#log = NO_FRAMES;
	}
	/** Counts a received data frame. Returns when its ack is due (rule 7): after a quarter of the other side's log, so that it can go on sending. */
	receive(length) {
		const { logFrames, logLength } = this.theirs;
		this.received++;
		this.#owedFrames++;
		this.#owedLength += length;
		if (this.#owedFrames >= Math.floor(logFrames / 4) || this.#owedLength >= Math.floor(logLength / 4)) return "now";
		return this.#owedFrames >= EARLY_FRAMES || this.#owedLength >= EARLY_LENGTH ? "with-data" : void 0;
	}
	/** Whether a received frame is not acknowledged yet. */
	get owes() {
		return this.#owedFrames > 0;
	}
	/** Returns the count for an ack or a `resume`, after which no ack is owed. */
	ack() {
		this.#owedFrames = this.#owedLength = 0;
		return this.received;
	}
	/** Client: returns the next `resume`, which acknowledges what was received. */
	resume(limits) {
		const attempt = ++this.resumeAttempts;
		return {
			token: this.token,
			received: this.ack(),
			attempt,
			limits: pickLimits(limits),
			bytes: limits.bytes
		};
	}
	/** Returns true if the other side can have received that many frames: not fewer than it acknowledged, and not more than were sent (rule 5). */
	canHaveReceived(received) {
		return received >= this.acked && (received < this.next || received <= this.#sentBefore);
	}
	/** Rule 5: moves `next` to the first frame that the other side has not received. */
	rewind(received) {
		this.#sentBefore = Math.max(this.#sentBefore, this.next - 1);
		this.ackTo(received);
		this.next = received + 1;
	}
};
var COLLECTED_PONGS = 1024;
var PACK_LENGTH = MOST_COALESCED;
var LOG_FRAMES = 4096;
var MOST_HIGH_WATER_BYTES = 2 ** 20;
function endpointLimits(limits, bytes) {
	const { maxMessageBytes, maxUnsentBytes } = limits;
	return {
		maxMessageBytes,
		logFrames: LOG_FRAMES,
		logLength: maxUnsentBytes,
		highWaterBytes: Math.min(Math.ceil(maxUnsentBytes / 4), MOST_HIGH_WATER_BYTES),
		bytes: bytes && true,
		readBytes: bytes?.read
	};
}
function frameOf(message) {
	return typeof message === "string" ? `[${message}]` : message.frame;
}
var OVERHEAD_BYTES = 2;
var SEVERAL_BYTES = 24582;
function longestFrame(maxMessageBytes) {
	return Math.max(maxMessageBytes + OVERHEAD_BYTES, SEVERAL_BYTES);
}
var TOKEN$1 = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]/g;
function isTooLong(pack, maxMessageBytes) {
	const most = maxMessageBytes + OVERHEAD_BYTES;
	if (most >= SEVERAL_BYTES || !exceeds(pack, most)) return false;
	let depth = 0;
	let start = 0;
	for (const { 0: token, index } of pack.matchAll(TOKEN$1)) {
		if ("[{".includes(token) && depth++ === 0) start = index + 1;
		if ("]}".includes(token)) depth--;
		if (depth > 1 || depth === 1 && token !== ",") continue;
		if (exceeds(pack.slice(start, index), maxMessageBytes)) return true;
		start = index + 1;
	}
	return false;
}
var Attachment = class {
	constructor(socket, kind, session) {
		this.kind = kind;
		this.session = session;
		this.socket = socket;
		this.controls = this.messages = this.ackDue = this.hello = void 0;
		this.length = 0;
		this.owesHello = false;
	}
};
var NO_SESSIONS = "the server keeps no sessions any more";
var NO_SUCH_SESSION = "the server has no such session";
var Endpoint = class {
	/** Whether this end uses sessions. */
	#wantsSession;
	/** The number of dropped messages that is not reported to the other side yet. */
	#missed = 0;
	constructor(limits, wantsSession) {
		this.state = { kind: "connecting" };
		this.takesBytes = false;
		this.receiver = void 0;
		this.limits = limits;
		this.#wantsSession = wantsSession;
	}
	/** The present socket, and the last one while it closes. */
	get socket() {
		return this.state.socket;
	}
	/** The attachment, if messages may be sent on it: in all its states except `resuming`. */
	get flowing() {
		const { state } = this;
		return state instanceof Attachment && state.kind !== "resuming" ? state : void 0;
	}
	/** Whether the other side is a reciproc peer. Then this end sends packs: a server after its hello, a client after its own. */
	get isReciproc() {
		const { kind, session } = this.state;
		return session !== void 0 || kind === "sessionless" || kind === "greeting";
	}
	/**
	* Returns the attachment if it takes a message at once. Rule 7: no message gets a number while the log or the socket is full. `drain`
	* follows when they have room again. Without a session, the caller learns from the socket whether it is closed.
	*/
	withRoom() {
		const at = this.flowing;
		if (at?.session === void 0) return at;
		if (at.length > 0) return at.socket.open ? at : void 0;
		const { session, socket } = at;
		const isSocketFull = socket.unsentBytes >= this.limits.highWaterBytes;
		if (isSocketFull) this.socketFull();
		return isSocketFull || !session.hasRoom || !socket.open ? void 0 : at;
	}
	/**
	* Client: begins on a new socket. `isAgreed`: whether the server agreed to `reciproc.v1`. `hello`: the content of its first frame,
	* `undefined` if that is no hello or has not come. `isAwaited`: the client offered to resume, so the server waits for its frame.
	*/
	begin(at, isAgreed, hello, isAwaited) {
		at.hello = hello;
		if (hello !== void 0) this.#receiveServerHello(at, hello, isAwaited);
		else if (at.session !== void 0) this.#discard(NO_SESSIONS, at, isAgreed);
		else this.startMessages(at, isAgreed ? "undecided" : "plain");
	}
	/** Drops the attachment: its socket is lost or superseded. `end` has the close code. */
	detach(end) {
		const { state } = this;
		const { session } = state;
		if (state.kind === "ended") state.socket = void 0;
		else if (session === void 0 || endsSession(end.code)) this.#forget(end, void 0);
		else {
			if (state instanceof Attachment && state.messages !== void 0) session.push(`[${state.messages.join(",")}]`);
			this.state = {
				kind: "suspended",
				session
			};
		}
	}
	/** Takes a frame of the present socket. */
	receiveFrame(text) {
		const { state } = this;
		if (state.kind !== "live" && state.kind !== "sessionless") return this.#receiveUnpacked(state, text);
		const frame = parse(text);
		if (Array.isArray(frame)) {
			const { maxMessageBytes } = this.limits;
			if (text.length * 3 > maxMessageBytes && isTooLong(text, maxMessageBytes)) return this.end(MessageTooBig, TOO_LARGE);
			this.#countFrame(state, text.length);
			this.receivePack(frame);
		} else if (isObject(frame)) {
			if ("missed" in frame) this.#receiveMissed(state, text, frame.missed);
			else this.#receiveControl(state, frame);
			if (state.owesHello && state.length === 0 && state.controls === void 0) this.#oweAck(state);
		} else this.fail("neither a pack nor a control frame");
	}
	/** Takes a frame in a state in which no packs come. */
	#receiveUnpacked(state, text) {
		if (state.kind === "resuming") return this.#receiveResumed(state, parse(text));
		if (!(state instanceof Attachment)) return;
		const hello = state.kind === "undecided" ? helloOf(text) : void 0;
		if (hello !== void 0) return this.#receiveServerHello(state, hello, true);
		if (state.kind === "undecided") state.kind = "plain";
		if (exceeds(text, this.limits.maxMessageBytes)) this.end(MessageTooBig, TOO_LARGE);
		else this.receiver.dispatch(parse(text));
	}
	/** Takes a binary frame of the present socket. Returns false if it is text, because not both sides take binary frames. */
	receiveBinary(frame) {
		const { state } = this;
		if (!this.takesBytes || state.kind !== "live" && state.kind !== "sessionless") return false;
		if (frame.length > this.limits.maxMessageBytes) this.end(MessageTooBig, TOO_LARGE);
		else {
			const message = this.limits.readBytes(frame);
			if (message === void 0) this.fail("a binary frame breaks its rules");
			else {
				this.#countFrame(state, frame.length);
				this.receivePack([message]);
			}
		}
		return true;
	}
	/** Counts a received data frame. */
	#countFrame(at, length) {
		const ackDue = at.session?.receive(length);
		if (ackDue === "now" || at.owesHello) this.#oweAck(at);
		else at.ackDue ??= ackDue;
	}
	/** Sends an ack at the end of the tick. */
	#oweAck(at) {
		at.ackDue = "now";
		this.tick.schedule();
	}
	#receiveMissed(at, text, count2) {
		if (!isCount$1(count2) || count2 === 0) return this.fail("`missed` is no count");
		this.#countFrame(at, text.length);
		this.receiver.missed(count2);
	}
	#receiveControl(at, frame) {
		if ("ping" in frame) this.#pong(at, frame.ping);
		else if ("ack" in frame) this.#receiveAck(at, frame.ack);
		else if ("bye" in frame) this.#receiveBye(frame.bye);
		else this.control(frame);
	}
	/** Client: takes the server's hello. */
	#receiveServerHello(at, hello, isAwaited) {
		const { session } = at;
		this.takesBytes = this.limits.bytes === true && says(hello, "bytes");
		const offer = this.#wantsSession ? member(hello, "session") : void 0;
		if (!isObject(offer)) {
			if (session !== void 0) return this.#discard(NO_SESSIONS, at);
			this.#flushMessages();
			this.write([sessionlessHello(this.limits.bytes)]);
			this.startMessages(at, "sessionless");
		} else if (session === void 0) this.#open(at, offer, isAwaited);
		else this.write([JSON.stringify({ resume: session.resume(this.limits) })]);
	}
	/**
	* Client: accepts the session that the server offers. The data frames of both sides are counted from their hellos on. The session
	* exists with the server's hello (rule 9). So the client's hello is sent with the first other frame, or at once if the server waits
	* for it.
	*/
	#open(at, offer, isAwaited) {
		const offered = sessionOf(offer);
		if (offered === void 0) return this.fail("`session` of a hello breaks its rules");
		this.#flushMessages();
		at.owesHello = true;
		if (isAwaited) this.write([]);
		this.startMessages(at, "live", new Session(this.limits, offered));
	}
	/** Client: takes the response to `resume`. Any other data frame would belong to no session (rule 1). */
	#receiveResumed(at, frame) {
		if (!isObject(frame)) return this.fail("data before `resumed`");
		if ("bye" in frame) return this.#receiveBye(frame.bye);
		if (!("resumed" in frame)) return;
		if (member(frame.resumed, "refused") !== void 0) return this.#discard(NO_SUCH_SESSION, at);
		const { session } = at;
		const resumed = resumedOf(frame.resumed);
		if (resumed === void 0 || session?.canHaveReceived(resumed.received) !== true) return this.fail("`resumed` breaks its rules");
		session.token = resumed.token;
		this.#sendAck(at, session);
		session.rewind(resumed.received);
		this.startMessages(at, "live", session);
	}
	#receiveAck(at, count2) {
		const { session } = at;
		if (session === void 0) return;
		if (!isCount$1(count2) || count2 >= session.next) return this.fail("`ack` is no count of the frames sent");
		session.ackTo(count2);
		this.confirmed?.();
		this.drain();
	}
	/** Rule 6: the other side ends the session on purpose. */
	#receiveBye(bye) {
		if (!this.#wantsSession) return;
		const end = byeOf(bye) ?? {
			code: 1e3,
			reason: ""
		};
		this.#end({
			...end,
			reason: cutReason(end.reason)
		}, true);
	}
	#pong(at, value) {
		const { unsentBytes } = at.socket;
		if (unsentBytes >= 65536) return;
		if (at.session?.owes) this.#oweAck(at);
		const pong = pongFrame(value);
		if (pong === void 0) return this.fail("a ping that cannot be answered");
		(at.controls ??= []).push(pong);
		if (unsentBytes > 0 || at.controls.length * pong.length >= COLLECTED_PONGS) this.#flushControls(at);
		else this.tick.schedule();
	}
	/** As `Link.send`. */
	send(text) {
		const { session } = this.state;
		if (session !== void 0 && exceeds(text, session.theirs.maxMessageBytes)) return false;
		let at = this.withRoom();
		if (at !== void 0 && at.length > 0) at = this.makeRoom(at, text);
		if (at === void 0) return this.state.session !== void 0 && "full";
		if (typeof text !== "string") {
			if (session === void 0) return at.socket.send(text.frame);
			this.sendData(at, text.frame);
			return true;
		}
		const isDue = this.tick.added(at.length + text.length + 1);
		if (!isDue || at.length > 0) {
			if (!at.socket.open) return false;
			if (at.messages === void 0) at.messages = [text];
			else at.messages.push(text);
			at.length += text.length + 1;
			if (isDue) this.#flushMessages();
			return true;
		}
		const frame = at.kind === "plain" || at.kind === "undecided" ? text : `[${text}]`;
		if (session === void 0) return at.socket.send(frame);
		if (at.owesHello || at.ackDue !== void 0) this.sendData(at, frame);
		else {
			session.push(frame);
			session.next++;
			at.socket.send(frame);
		}
		return true;
	}
	/** Reports to the other side, if that is reciproc, that so many messages to it were dropped: now, or when messages flow. */
	reportMissed(count2) {
		if (this.state.kind === "ended") return;
		this.#missed += count2;
		this.#sendMissed();
	}
	/** Sends the report of dropped messages in order with the messages, as a data frame, so that it arrives once (rule 5). */
	#sendMissed() {
		if (this.#missed === 0 || !this.isReciproc || this.withRoom() === void 0) return;
		this.#flushMessages();
		const at = this.withRoom();
		if (at === void 0) return;
		if (at.socket.unsentBytes >= this.limits.highWaterBytes) return this.socketFull();
		this.sendData(at, `{"missed":${this.#missed}}`);
		this.#missed = 0;
	}
	/** Sends the frames of the tick, at its end. */
	flush() {
		const { state } = this;
		if (!(state instanceof Attachment)) return;
		if (state.controls !== void 0) this.#flushControls(state);
		if (state.ackDue === "now") this.#sendAck(state, state.session);
		if (state.messages !== void 0) this.#flushMessages();
	}
	/** Sends a control frame, after an ack that is owed. Returns false if it was not sent, because no messages flow. */
	sendControl(frame) {
		const at = this.flowing;
		if (at === void 0) return false;
		if (at.session?.owes) this.#sendAck(at, at.session);
		return this.write([frame]);
	}
	/** Sends logged messages: the log or the wire was full, and may have room again. */
	drain() {
		const at = this.flowing;
		if (at !== void 0) this.#sendWaiting(at);
	}
	/**
	* Ends the connection for the application of this side: sends all logged and `queued` messages, and then `bye`. A client that
	* waits for `resumed` sends only `bye`. The caller closes the socket.
	*/
	sayBye(bye, queued2 = []) {
		const { flowing } = this;
		const { session } = this.state;
		if (flowing !== void 0) {
			this.flush();
			if (session !== void 0) {
				this.sendData(flowing, void 0, Infinity);
				for (const [handle, text] of queued2) handle.sent = this.#writeFrame(flowing, frameOf(sentForm(text, this.takesBytes)));
			}
		}
		if (session !== void 0 || bye.retryMs !== void 0 && this.isReciproc) this.write([byeFrame(bye)]);
		this.#forget({
			code: bye.code,
			reason: bye.reason
		}, this.socket);
	}
	/** Client: ends the session with a bye. A new connection follows. */
	restart(reason, error) {
		const end = {
			code: Superseded,
			reason
		};
		if (this.state.session !== void 0) this.write([byeFrame(end)]);
		this.end(end.code, reason, error);
	}
	/** Ends the connection with 1002, because the other side broke the protocol. */
	fail(reason) {
		this.end(ProtocolError, reason);
	}
	/** Ends the connection and its session, for a reason of this side. */
	end(code, reason, error) {
		this.#end({
			code,
			reason,
			error
		}, false);
	}
	/** Client: discards the session. The socket stays open, for the next connection. */
	#discard(reason, at, isAgreed = true) {
		this.#forget({
			code: Normal,
			reason
		}, void 0);
		this.reportDiscarded(reason, at, isAgreed);
	}
	#end(end, isRemote) {
		if (this.state.kind === "ended") return;
		this.#forget(end, this.socket);
		this.reportEnd(end, isRemote);
	}
	/** Rule 8: drops all state, so that no message of an ended session is sent, and the session is not resumed. */
	#forget(end, socket) {
		this.state = {
			kind: "ended",
			socket,
			end,
			wasFlowing: this.flowing !== void 0
		};
		this.#missed = 0;
		this.takesBytes = false;
	}
	/** Sends logged messages, and reports that messages flow. */
	startMessages(at, kind, session) {
		const wasSuspended = at.kind === "resuming";
		at.kind = kind;
		at.session = session;
		this.#sendWaiting(at, wasSuspended);
		this.reportReady(wasSuspended);
	}
	/**
	* Sends the logged frames (rule 5), until the wire is full. Reports when messages are taken again, which follow. A receiver that is
	* suspended sends them when it is resumed.
	*/
	#sendWaiting(at, wasSuspended = false) {
		this.sendData(at);
		this.#sendMissed();
		if (!wasSuspended && this.withRoom() !== void 0) this.receiver.drained();
	}
	/**
	* Makes room for a message: a long one, and one with bytes, gets a frame of its own, after the messages that were added before it,
	* which may fill the log or the wire. Returns the attachment, if it still takes messages.
	*/
	makeRoom(at, text) {
		if (typeof text === "string" && at.length + text.length <= PACK_LENGTH) return at;
		this.#flushMessages();
		return this.withRoom();
	}
	#flushControls(at) {
		const { controls } = at;
		at.controls = void 0;
		this.write(controls);
	}
	/** Sends the messages of this tick: in one data frame, or each plainly if the other side is not reciproc. */
	#flushMessages() {
		const { state } = this;
		if (!(state instanceof Attachment)) return;
		const { messages } = state;
		if (messages === void 0) return;
		state.messages = void 0;
		state.length = 0;
		if (this.isReciproc) this.sendData(state, messages.length === 1 ? `[${messages[0]}]` : `[${messages.join(",")}]`);
		else state.socket.send(...messages);
	}
	/** As `write`, of one data frame. */
	#writeFrame(at, frame) {
		if (this.state !== at) return false;
		if (!at.owesHello) return at.socket.send(frame);
		return typeof frame === "string" ? this.write([frame]) : this.write([]) && at.socket.send(frame);
	}
	/** Sends frames, after the hello if that is owed. Returns false if there is no socket, or it takes no more frames. */
	write(frames) {
		const { state } = this;
		if (!(state instanceof Attachment)) return false;
		if (state.owesHello) {
			state.owesHello = false;
			frames.unshift(clientHello(this.limits, this.limits.bytes));
		}
		return state.socket.send(...frames);
	}
	/**
	* Sends a data frame, if there is one. In a session, gives it the next number, and sends the logged frames that were not written to
	* this socket, new or replayed, while the socket has room (rule 7).
	*/
	sendData(at, data, highWaterBytes = this.limits.highWaterBytes) {
		const { session, socket } = at;
		if (session === void 0) return void (data && socket.send(data));
		if (data !== void 0) session.push(data);
		if (at.ackDue !== void 0) this.#sendAck(at, session);
		if (this.state !== at) return;
		while (session.hasUnsent) {
			if (socket.unsentBytes >= highWaterBytes) return this.socketFull();
			const frame = session.takeUnsent();
			if (at.owesHello) this.#writeFrame(at, frame);
			else socket.send(frame);
		}
	}
	/** Sends an ack. If the other side causes acks without end and reads none of them, ends the connection. */
	#sendAck(at, session) {
		const { logLength, highWaterBytes } = this.limits;
		at.ackDue = void 0;
		if (at.socket.unsentBytes <= Math.max(logLength, highWaterBytes)) this.write([`{"ack":${session.ack()}}`]);
		else if (session.logLength === 0) this.end(TryAgainLater, "too many acks wait to be read");
		else {
			at.ackDue = "now";
			this.socketFull();
		}
	}
};
var PROTOCOL = "reciproc.v1";
var DRAIN_CHECK_MS = 20;
var PACK_MESSAGES = 16;
var NegotiatedLink = class extends Endpoint {
	constructor(limits, wantsSession, delegate) {
		super(limits, wantsSession);
		this.deadline = 0;
		this.delegate = delegate;
		this.tick = new Coalescer(this, PACK_MESSAGES);
	}
	get isConnecting() {
		return this.state.kind === "connecting";
	}
	start(receiver) {
		this.receiver = receiver;
		this.socket?.start(this);
	}
	/** Closes the socket, after the bye. */
	close(code = Normal, reason = "") {
		this.#endResumption();
		if (this.socket !== void 0) this.socket.close(code, reason);
		else this.#reportClosed({
			code,
			reason
		});
	}
	/** As `Link.endSession`. Returns false if there is no session. */
	endSession(reason) {
		const { state } = this;
		if (state.session !== void 0) this.end(TryAgainLater, reason);
		return state.session !== void 0 || state.kind === "ended";
	}
	get maxMessageBytes() {
		return this.state.session?.theirs.maxMessageBytes;
	}
	get unsentBytes() {
		return this.state.socket?.unsentBytes ?? 0;
	}
	/** When data last came on the present socket, by `performance.now()`, if the socket records it. */
	get receivedAt() {
		return this.socket?.receivedAt;
	}
	/** Whether the other side answers pings. */
	get canPing() {
		return this.isReciproc || this.socket?.ping !== void 0;
	}
	ping() {
		if (this.isReciproc) this.sendControl("{\"ping\":1}");
		else this.socket?.ping?.();
	}
	/** Client: takes the first or the next socket. As `Endpoint.begin`. With `readsLater`, the caller starts the socket. */
	attach(socket, isAgreed, hello, isAwaited, readsLater = false) {
		if (this.state.kind === "ended") return socket.discard(Superseded, "the connection is over");
		this.begin(this.attachSocket(socket), isAgreed, hello, isAwaited);
		if (this.socket === socket && !readsLater) socket.start(this);
	}
	/** Attaches a socket. Until `kind` changes, messages flow only if it says so. */
	attachSocket(socket, kind = "resuming", session = this.state.session) {
		socket.maxFrameBytes = longestFrame(this.limits.maxMessageBytes);
		return this.state = new Attachment(socket, kind, session);
	}
	/** Drops the socket, as if it had been lost. */
	dropSocket(reason) {
		if (this.socket === void 0) return;
		this.socket.discard(Superseded, reason);
		this.closed({
			code: Abnormal,
			reason
		});
	}
	/** Reacts to the end of the present socket. */
	closed(info) {
		const { flowing } = this;
		this.detach(info);
		const { state } = this;
		if (this.receiver.ended !== void 0) return this.#reportClosed(info);
		if (state.kind === "ended") return this.#finish(state.end.code === 1009 ? endOf(info, state.end) : state.end, state.wasFlowing);
		if (flowing !== void 0) {
			setDeadline(this, state.session.ttlMs);
			this.receiver.suspended();
		} else if (this.checkExpiry()) return;
		this.#reportSuspended(info);
	}
	#reportSuspended(end) {
		const { kind } = this.state;
		if (kind === "suspended" || kind === "connecting") this.delegate?.suspended?.(end);
	}
	/** Ends a suspended session that has expired, because its timer may be late. Returns true if the session has ended. */
	checkExpiry() {
		const { state } = this;
		if (state.kind !== "suspended" || performance.now() < this.deadline) return false;
		this.end(Abnormal, `the session was not resumed within ${state.session.ttlMs} ms`);
		return true;
	}
	/** Stops the timer of a session that is resumed or has ended, or of a socket that is detached. */
	#stopTimer() {
		clearDeadline(this);
		this.deadline = 0;
	}
	socketFull() {
		if (this.deadline === 0) setDeadline(this, DRAIN_CHECK_MS);
	}
	/** Checks a full socket, ends a suspended session that has expired, or drops a socket that was not closed after a bye. */
	expire() {
		if (this.state.kind === "ended") return this.dropSocket("no close followed the bye");
		this.deadline = 0;
		this.drain();
		this.checkExpiry();
	}
	/** Dispatches the messages of a pack, until one ends the connection. The next connection of a client has another receiver. */
	receivePack(messages) {
		const receiver = this.receiver;
		for (const message of messages) if (this.state.kind !== "ended") receiver.dispatch(message);
	}
	reportReady(wasSuspended) {
		this.#stopTimer();
		if (this.unsentBytes >= this.limits.highWaterBytes) this.socketFull();
		this.delegate?.ready?.();
		if (wasSuspended && this.flowing !== void 0) this.receiver.resumed();
	}
	reportEnd(end, isRemote) {
		this.#endResumption();
		if (this.socket === void 0) queueMicrotask$1(() => this.#finish(end, false));
		else if (isRemote) setDeadline(this, CLOSE_TIMEOUT_MS);
		else this.socket.close(end.code, end.reason);
	}
	reportDiscarded(reason, { socket, hello }, isAgreed) {
		this.#endResumption();
		const at = this.attachSocket(socket);
		this.receiver.lost(new Error(reason));
		if (this.state === at) this.begin(at, isAgreed, hello, true);
	}
	control(frame) {
		this.delegate?.control?.(frame);
	}
	/** Stops the timer, and reports that the session cannot be resumed any more. */
	#endResumption() {
		this.#stopTimer();
		this.delegate?.resumptionEnded?.();
	}
	/** Ends the connection. Another one follows, if the delegate says so. */
	#finish(end, wasFlowing) {
		const receiver = this.receiver;
		if (receiver.ended !== void 0) return;
		this.#endResumption();
		if (this.delegate?.continues?.(end) !== true) return this.#reportClosed(end);
		this.state = { kind: "connecting" };
		if (wasFlowing) receiver.suspended();
		if (receiver.ended === void 0) receiver.lost(errorOfEnd("the session ended", end));
		this.#reportSuspended(end);
	}
	#reportClosed(end) {
		this.delegate?.closed?.();
		this.receiver.closed(end);
	}
};
function notInUse(name) {
	return mistake(`this needs the option \`use: [${name}]\`, with the export \`${name}\``);
}
var Parts = class {
	#parts;
	constructor(use, connection) {
		this.#parts = new Map(use.map((feature) => [feature.name, feature.create(connection)]));
	}
	/** Returns the part of a feature; `undefined` if the peer does not use it. */
	find(name) {
		return this.#parts.get(name);
	}
	get(name) {
		const part = this.#parts.get(name);
		if (part === void 0) throw notInUse(name);
		return part;
	}
	/** Calls a function of each part that has it, until one returns true or a text. Returns that. */
	first(name, ...args) {
		for (const part of this.#parts.values()) {
			const result = part[name]?.apply(part, args);
			if (result) return result;
		}
	}
	/** Calls a function of each part that has it, whatever it returns. */
	each(name, ...args) {
		for (const part of this.#parts.values()) part[name]?.apply(part, args);
	}
};
var anyRetry = optional(oneOf("not-sent", "always", false));
var CALL_OPTIONS = {
	timeoutMs: optional(positive),
	maxTotalTimeoutMs: optional(positive, Infinity),
	signal: optional(anySignal),
	onProgress: optional(anyFunction),
	resetTimeoutOnProgress: (value) => value === true,
	retry: anyRetry
};
function settingsOf(options, defaults) {
	const { timeoutMs = defaults.timeoutMs, retry = defaults.retry, ...rest } = checkOptions("options", options, CALL_OPTIONS);
	return {
		timeoutMs,
		retry,
		...rest
	};
}
var OutgoingCall = class {
	constructor(calls, id, method, settings, resolve) {
		this.deadline = 0;
		this.before = void 0;
		this.after = void 0;
		this.nextInPlace = void 0;
		this.sent = false;
		this.handle = this;
		this.again = void 0;
		this.onSettled = void 0;
		this.calls = calls;
		this.id = id;
		this.method = method;
		this.settings = settings;
		this.resolve = resolve;
	}
	get hasRetry() {
		return this.again !== void 0 && this.settings.retry !== false;
	}
	/** Whether a loss of the connection leaves open whether it has run. */
	get mayHaveRun() {
		return this.sent || this.again?.wasSent === true;
	}
	/** Whether the message is queued, and has no other call. A batch in the queue is sent whole, so its calls may still run. */
	get canCancelMessage() {
		return !this.sent && this.handle === this;
	}
	/** Resolves the promise with one that rejects later, whose stack shows the caller: see `failed`. */
	reject(reason) {
		this.resolve(failed(reason, this.method));
	}
	expire() {
		this.timeOut(this.settings.timeoutMs);
	}
	/** Rejects the call: its caller waits no longer than `afterMs`. */
	timeOut(afterMs) {
		this.calls.giveUp(this, new TimeoutError(this.method, afterMs, this.canCancelMessage && !this.mayHaveRun ? "not-sent" : "unknown"));
	}
	/** Also calls `listener` when the call is settled. */
	whenSettled(listener) {
		const before = this.onSettled;
		this.onSettled = () => {
			before?.();
			listener();
		};
	}
};
function callsOf(handle) {
	return handle instanceof OutgoingCall ? [handle] : [...handle.calls ?? []];
}
var OptionalCancel = class {
	constructor() {
		this.sent = false;
	}
};
var MIB = 2 ** 20;
var MOST_BYTES = 256 * MIB;
var PEER_LIMITS = {
	maxMessageBytes: MIB,
	maxReplyBytes: MIB,
	maxBatchEntries: 1e3,
	maxInFlight: 1024,
	maxStreams: 256,
	maxUnsentBytes: 4 * MIB,
	maxMessagesPerSecond: Infinity,
	maxMalformedPerMinute: 100
};
var BURST = 8;
function burstBytes({ maxUnsentBytes, maxReplyBytes }) {
	return BURST * Math.max(maxUnsentBytes, maxReplyBytes);
}
function peerLimits(given) {
	return mergeLimits(PEER_LIMITS, given);
}
function mergeLimits(defaults, given) {
	const checks = Object.entries(defaults).map(([name, value]) => {
		return [name, optional(upTo(name.endsWith("Bytes") ? MOST_BYTES : Infinity), value)];
	});
	return checkOptions("limits", given, Object.fromEntries(checks));
}
function upTo(most) {
	return must(`a whole number from 1 to ${most}`, (value) => value === most || Number.isSafeInteger(value) && value >= 1 && value <= most);
}
var QUEUED_COST = 64;
var SendQueue = class {
	/** The messages by handle, in the order they were added. */
	#messages = /* @__PURE__ */ new Map();
	#length = 0;
	/** The length of all texts in UTF-16 code units, and of bytes, plus `QUEUED_COST` for each. */
	get length() {
		return this.#length;
	}
	/** The part of `length` that counts against the connection. */
	get ordinaryLength() {
		return this.#length;
	}
	/** Adds a message. Copies its bytes. */
	add(text, handle = { sent: false }) {
		if (typeof text !== "string") text.keep();
		this.replace(handle);
		handle.sent = false;
		this.#messages.set(handle, text);
		this.grow(text.length + QUEUED_COST, handle);
	}
	/** Removes the message that the message of `handle` replaces, if there is one. A caller that checks lengths calls this first. */
	replace(_handle) {}
	/** Removes a message. Returns false if it is not queued. */
	remove(handle) {
		const text = this.#messages.get(handle);
		if (text === void 0) return false;
		this.grow(-text.length - QUEUED_COST, handle);
		return this.#messages.delete(handle);
	}
	grow(by, _handle) {
		this.#length += by;
	}
	/** Iterates in the order of adding, including messages that are added meanwhile. The current message may be removed. */
	[Symbol.iterator]() {
		return this.#messages.entries();
	}
};
function unsentMarks({ maxUnsentBytes: limit }) {
	return {
		low: limit / 8,
		room: limit / 4,
		queue: limit / 2,
		limit
	};
}
var Flow = class {
	/** The length of the calls that the transport refused, and that wait for the next connection. */
	#refusedLength;
	/** The length of the ordinary messages that were queued when the socket was lost. Only those that come later count. */
	#carriedLength;
	#backlog;
	/** `isDown`: there is no socket yet. */
	constructor(connection, isDown) {
		this.isMixed = false;
		this.#refusedLength = 0;
		this.#carriedLength = 0;
		this.connection = connection;
		this.state = isDown ? "down" : "open";
		const waits = isDown || connection.config.hasOnOpen;
		this.sink = waits ? new OpeningQueue(connection, this.makeQueue()) : this;
	}
	/** The queue of the messages of the application that wait until `release`; `undefined` afterwards. */
	get openingQueue() {
		return this.sink instanceof OpeningQueue ? this.sink.queue : void 0;
	}
	/** From `suspend` to `resume`, and while connecting: messages of the application wait for a socket, or for `release`. */
	get isSuspended() {
		return this.isDown || this.sink !== this;
	}
	/** The limits of the unsent bytes. */
	get limits() {
		return this.connection.config.limits;
	}
	/** Whether there is no socket. */
	get isDown() {
		return this.state === "down";
	}
	/** Whether data that can wait, such as values of streams, may be sent now. */
	get hasRoom() {
		return !this.isDown && this.unsentBytes <= this.connection.config.marks.room;
	}
	/** Bytes that wait for the reader. Without a socket, queued messages do not count, because no slow reader causes them. */
	get unsentBytes() {
		const { unsentBytes = 0 } = this.connection.transport;
		return this.isBehind ? unsentBytes + this.queue.length : unsentBytes;
	}
	/** Those that count against the connection. */
	get ordinaryUnsentBytes() {
		return this.unsentBytes;
	}
	/** Whether messages are queued because the transport is full. */
	get isBehind() {
		return this.queue !== void 0 && (this.state === "full" || this.state === "draining");
	}
	get hasEnded() {
		return this.state === "ended";
	}
	/** Returns a queue for messages of this connection. `counter`: may count its length. */
	makeQueue(_counter) {
		return new SendQueue();
	}
	/** First ends the connection if its other side reads too slowly, and then sends nothing. */
	send(text, handle, message) {
		const { transport, config } = this.connection;
		if (!(this.state === "open" && !this.isMixed && handle?.droppable === void 0) || (transport.unsentBytes ?? 0) > config.marks.limit) {
			const isTaken2 = this.decide(text, handle);
			if (isTaken2 !== void 0) return isTaken2;
		}
		const isTaken = this.offer(text, handle, message);
		return isTaken === "full" ? this.enqueue(text, handle) : isTaken;
	}
	/** Returns `undefined` if a message is sent now. Otherwise queues it, or returns false. */
	decide(text, handle) {
		this.check();
		if (this.hasEnded) return false;
		return this.state === "open" ? void 0 : this.enqueue(text, handle);
	}
	/** Queues a message that the transport does not take now. Returns false if it is too long, is dropped, or ends the session. */
	enqueue(text, handle) {
		if (this.isTooLong(text)) return false;
		const queue = this.queue ??= this.makeQueue(this.connection.transport);
		const { queue: most } = this.connection.config.marks;
		if (this.isDown && queue.ordinaryLength + text.length > this.#carriedLength + most) {
			this.endSession("more than half of `maxUnsentBytes` was queued without a socket");
			return false;
		}
		queue.add(text, handle);
		return true;
	}
	isTooLong(text) {
		const { maxMessageBytes = Infinity, takesBytes } = this.connection.transport;
		return exceeds(sentForm(text, takesBytes), maxMessageBytes);
	}
	/**
	* Gives a message to the transport. Returns false if it will not be sent, and `"full"` if the transport does not take it now. A
	* transport that throws breaks its promise: the error is reported, and stops no loop over many peers.
	*/
	offer(text, handle, message) {
		const { transport } = this.connection;
		if (handle !== void 0) handle.sent = true;
		let isTaken = false;
		try {
			isTaken = message === void 0 || transport.sendEncoded === void 0 ? transport.send(sentForm(text, transport.takesBytes)) : transport.sendEncoded(message);
		} catch (error) {
			this.connection.report(error);
		}
		if (isTaken !== false && isTaken !== "full") {
			if (handle?.droppable !== void 0) this.sent(text, handle, message);
			return true;
		}
		if (handle !== void 0) handle.sent = false;
		if (isTaken === "full" && this.state === "open") this.state = "full";
		return isTaken;
	}
	/** Notes that the transport has taken a message that might have been dropped. */
	sent(_text, _handle, _message) {}
	/** Sends what is queued, in order, until the transport takes no more. */
	drain() {
		if (this.hasEnded) return;
		const { connection, queue } = this;
		this.state = "draining";
		for (const [handle, text] of queue ?? []) {
			const isTaken = this.offer(text, handle);
			if (isTaken !== "full") queue.remove(handle);
			if (connection.ended !== void 0) return;
			if (isTaken === false) this.refused(text, handle);
			if (this.state !== "draining") return;
			if (isTaken === "full") return void (this.state = "full");
		}
		this.queue = void 0;
		this.state = "open";
	}
	/** The transport takes messages again after it was full. */
	drained() {
		if (this.state === "full") this.drain();
	}
	/** The socket is lost. Messages are queued until `resumed`. */
	suspended() {
		if (this.hasEnded) return;
		this.state = "down";
		this.#carriedLength = this.queue?.ordinaryLength ?? 0;
	}
	/** There is a socket. Sends the queue of the flow. `release` sends the opening queue. */
	resumed() {
		this.drain();
		this.check();
	}
	/**
	* Sends what the application has queued until now, and what it sends meanwhile after that. `rewrite` returns the text to send for a queued
	* message, now that it is known what the other side understands; `undefined` if nothing is to be sent.
	*/
	release(rewrite) {
		const { openingQueue } = this;
		for (const [handle, queued2] of openingQueue ?? []) {
			openingQueue.remove(handle);
			const text = rewrite(queued2, handle);
			if (text !== void 0 && !this.send(text, handle)) this.refused(text, handle);
		}
		this.sink = this;
	}
	/** Reports a queued message that the transport has refused. */
	refused(text, handle) {
		this.connection.outgoing.refused(text, handle);
	}
	/** Notes that a call waits for the next connection, because the transport refused it. Returns false if too many do. */
	keepRefused({ length }) {
		const isKept = this.sink === this && this.#refusedLength + length <= this.connection.config.marks.queue;
		if (isKept) this.#refusedLength += length;
		return isKept;
	}
	/** Cancels a queued message. Returns false if it is not queued. */
	cancel(handle) {
		return this.openingQueue?.remove(handle) === true || this.queue?.remove(handle) === true;
	}
	/** Sends the messages that wait only for a reader to catch up: the connection is about to close. */
	flush() {}
	/** The connection has ended: nothing is sent, and no timer runs any more. Returns the messages that a full transport has not taken. */
	stop() {
		this.#backlog?.stop();
		if (this.state !== "full" && !this.hasEnded) this.queue = void 0;
		this.state = "ended";
		return this.queue ?? [];
	}
	/** As `Link.afterRead`, for all messages that were sent before. */
	afterRead(then) {
		return this.state === "open" && this.connection.transport.afterRead?.(then) === true;
	}
	/** Ends the session, or the connection: too much is unsent or queued. */
	endSession(reason) {
		this.state = "ended";
		this.queue = void 0;
		const { connection } = this;
		if (connection.transport.endSession?.(reason) !== true) connection.end({
			code: TryAgainLater,
			reason
		});
	}
	/** Watches the unsent bytes while they are above `maxUnsentBytes`. */
	check() {
		if (!this.hasEnded && this.unsentBytes > this.connection.config.marks.limit) (this.#backlog ??= new Backlog(this)).exceeded();
	}
};
var OpeningQueue = class {
	#connection;
	/** `queue`: an empty one, of the connection's flow. */
	constructor(connection, queue) {
		this.#connection = connection;
		this.queue = queue;
	}
	/** Calls that are made again may fill as much again as all others. */
	send(text, handle) {
		const connection = this.#connection;
		const { queue } = this;
		queue.replace(handle);
		const most = connection.config.marks.queue * (handle?.hasRetry === true ? 2 : 1);
		if (connection.ended !== void 0 || queue.length + text.length > most) return false;
		queue.add(text, handle);
		return true;
	}
};
var CHECK_MS$1 = 1e3;
var CHECKS = 10;
var Backlog = class {
	#flow;
	/** How many checks in a row found the backlog above the limit; `undefined` while it is not watched. */
	#found;
	constructor(flow) {
		this.deadline = 0;
		this.#flow = flow;
	}
	/** Starts to watch: the backlog exceeds `maxUnsentBytes`. Above the hard limit, acts at once. */
	exceeded() {
		const { limits, ordinaryUnsentBytes } = this.#flow;
		const most = burstBytes(limits);
		if (ordinaryUnsentBytes > most) return this.#flow.endSession(`more than ${most} bytes wait to be read`);
		if (this.#found !== void 0) return;
		this.#found = 0;
		setDeadline(this, CHECK_MS$1);
	}
	/** Stops watching. */
	stop() {
		this.#found = void 0;
		clearDeadline(this);
	}
	expire() {
		const { limits, ordinaryUnsentBytes } = this.#flow;
		const { maxUnsentBytes } = limits;
		if (ordinaryUnsentBytes <= maxUnsentBytes) return this.stop();
		this.#found += 1;
		setDeadline(this, CHECK_MS$1);
		if (this.#found < CHECKS) return;
		this.#flow.endSession(`more than ${maxUnsentBytes} bytes unread for ${CHECKS * CHECK_MS$1 / 1e3} s`);
	}
};
var isBytesCodec = (it) => typeof it === "function" && "read" in it;
function isFeature(it) {
	const { name, methods, create } = Object(it);
	return typeof name === "string" && typeof methods === "function" && typeof create === "function";
}
var aFeature = must("a feature, such as the export `streams`", (it) => isFeature(it) || isBytesCodec(it));
var aDialect = shape({
	cancel: shape({
		method: anyString,
		params: anyFunction,
		idOf: anyFunction
	}),
	progress: shape({
		method: anyString,
		tokenIn: anyFunction,
		withToken: anyFunction,
		params: anyFunction,
		read: anyFunction
	})
});
var aContract = must("a contract", (value) => value?.fit !== void 0);
var PEER_OPTIONS = {
	methods: (value = {}, name) => tableOf(value, name, anyFunction),
	/** Checked by the feature of that name. */
	schemas: any,
	contract: optional(aContract),
	remote: optional(aContract),
	check: optional(oneOf("both")),
	timeoutMs: optional(positive),
	retry: anyRetry,
	fallback: optional(anyFunction),
	/** Of a list of wrappers, makes one: `next` of each runs the one after it. */
	around: optional((value, name) => [value].flat().reduceRight((inner, one) => {
		const outer = anyFunction(one, name);
		return inner === void 0 ? outer : (call, next) => outer(call, () => promised(() => inner(call, next)));
	}, void 0)),
	limits: (value) => peerLimits(value),
	dialect: optional(aDialect),
	compat: optional(oneOf("1.0")),
	onForeignMessage: optional(anyFunction),
	use: optional((value, name) => {
		return must("an array of features", Array.isArray)(value, name).map((it, i) => aFeature(it, `${name}[${i}]`));
	})
};
var DEFAULTS$1 = {
	timeoutMs: 6e4,
	retry: false
};
var DEFAULT_DIALECT = {
	name: "lsp",
	cancel: lspCancel
};
function makeConfig(checked, hasOnOpen = false) {
	const { methods, fallback, timeoutMs, retry, use: all = [] } = checked;
	const use = [...new Map(all.filter(isFeature).map((feature) => [feature.name, feature])).values()];
	const fit = (checked.contract ?? checked.remote)?.fit(checked);
	const { fitSchemas: fitSchemas2 } = use.find((feature) => feature.fitSchemas) ?? {};
	if (checked.schemas !== void 0 && fitSchemas2 === void 0) throw notInUse("schemas");
	const dialect = checked.dialect ?? DEFAULT_DIALECT;
	const { compat: compat2, onForeignMessage } = checked;
	if ((compat2 ?? onForeignMessage) !== void 0 && use.every(({ name }) => name !== "compat")) throw notInUse("compat");
	return {
		methods,
		/** Checks params; `undefined` if none are checked. */
		checkParams: fit?.checkParams ?? fitSchemas2?.(checked),
		/** Checks results, progress and stream values; `undefined` if they are not checked. */
		checks: fit?.checks,
		fallback,
		around: (fit ?? checked).around,
		/** The defaults of the options of a call. */
		settings: settingsOf({
			timeoutMs: timeoutMs ?? dialect.timeoutMs,
			retry
		}, DEFAULTS$1),
		limits: checked.limits,
		marks: unsentMarks(checked.limits),
		dialect,
		/** Whether the application chose the dialect. The default dialect is understood, and spoken only to a reciproc peer. */
		choseDialect: checked.dialect !== void 0,
		/** Methods of cancels and of features, whose messages are taken before any handler. */
		protocolMethods: /* @__PURE__ */ new Set([dialect.cancel.method, ...use.flatMap((feature) => feature.methods(dialect))]),
		use,
		/** The class of the flow of each connection. */
		Flow: use.find((feature) => feature.Flow)?.Flow ?? Flow,
		/** Whether messages of JSON-RPC 1.0 are understood too. */
		compat: compat2,
		/** Takes messages of another protocol, with the peer. If it is missing, they are malformed. */
		onForeignMessage,
		/** Reads binary frames, and marks the values of streams. Without it, the other side sends no binary frames. */
		bytes: all.find(isBytesCodec),
		/** Whether calls and notifications are queued, on each new connection, until `Connection.release`. */
		hasOnOpen
	};
}
function getDefaultExportFromCjs(x) {
	return x && x.__esModule && Object.prototype.hasOwnProperty.call(x, "default") ? x["default"] : x;
}
var eventemitter3 = { exports: {} };
var hasRequiredEventemitter3;
function requireEventemitter3() {
	if (hasRequiredEventemitter3) return eventemitter3.exports;
	hasRequiredEventemitter3 = 1;
	(function(module) {
		var has = Object.prototype.hasOwnProperty, prefix = "~";
		function Events() {}
		if (Object.create) {
			Events.prototype = /* @__PURE__ */ Object.create(null);
			if (!new Events().__proto__) prefix = false;
		}
		function EE(fn, context, once) {
			this.fn = fn;
			this.context = context;
			this.once = once || false;
		}
		function addListener(emitter, event, fn, context, once) {
			if (typeof fn !== "function") throw new TypeError("The listener must be a function");
			var listener = new EE(fn, context || emitter, once), evt = prefix ? prefix + event : event;
			if (!emitter._events[evt]) emitter._events[evt] = listener, emitter._eventsCount++;
			else if (!emitter._events[evt].fn) emitter._events[evt].push(listener);
			else emitter._events[evt] = [emitter._events[evt], listener];
			return emitter;
		}
		function clearEvent(emitter, evt) {
			if (--emitter._eventsCount === 0) emitter._events = new Events();
			else delete emitter._events[evt];
		}
		function EventEmitter2() {
			this._events = new Events();
			this._eventsCount = 0;
		}
		EventEmitter2.prototype.eventNames = function eventNames() {
			var names = [], events, name;
			if (this._eventsCount === 0) return names;
			for (name in events = this._events) if (has.call(events, name)) names.push(prefix ? name.slice(1) : name);
			if (Object.getOwnPropertySymbols) return names.concat(Object.getOwnPropertySymbols(events));
			return names;
		};
		EventEmitter2.prototype.listeners = function listeners(event) {
			var evt = prefix ? prefix + event : event, handlers = this._events[evt];
			if (!handlers) return [];
			if (handlers.fn) return [handlers.fn];
			for (var i = 0, l = handlers.length, ee = new Array(l); i < l; i++) ee[i] = handlers[i].fn;
			return ee;
		};
		EventEmitter2.prototype.listenerCount = function listenerCount(event) {
			var evt = prefix ? prefix + event : event, listeners = this._events[evt];
			if (!listeners) return 0;
			if (listeners.fn) return 1;
			return listeners.length;
		};
		EventEmitter2.prototype.emit = function emit(event, a1, a2, a3, a4, a5) {
			var evt = prefix ? prefix + event : event;
			if (!this._events[evt]) return false;
			var listeners = this._events[evt], len = arguments.length, args, i;
			if (listeners.fn) {
				if (listeners.once) this.removeListener(event, listeners.fn, void 0, true);
				switch (len) {
					case 1: return listeners.fn.call(listeners.context), true;
					case 2: return listeners.fn.call(listeners.context, a1), true;
					case 3: return listeners.fn.call(listeners.context, a1, a2), true;
					case 4: return listeners.fn.call(listeners.context, a1, a2, a3), true;
					case 5: return listeners.fn.call(listeners.context, a1, a2, a3, a4), true;
					case 6: return listeners.fn.call(listeners.context, a1, a2, a3, a4, a5), true;
				}
				for (i = 1, args = new Array(len - 1); i < len; i++) args[i - 1] = arguments[i];
				listeners.fn.apply(listeners.context, args);
			} else {
				var length = listeners.length, j;
				for (i = 0; i < length; i++) {
					if (listeners[i].once) this.removeListener(event, listeners[i].fn, void 0, true);
					switch (len) {
						case 1:
							listeners[i].fn.call(listeners[i].context);
							break;
						case 2:
							listeners[i].fn.call(listeners[i].context, a1);
							break;
						case 3:
							listeners[i].fn.call(listeners[i].context, a1, a2);
							break;
						case 4:
							listeners[i].fn.call(listeners[i].context, a1, a2, a3);
							break;
						default:
							if (!args) for (j = 1, args = new Array(len - 1); j < len; j++) args[j - 1] = arguments[j];
							listeners[i].fn.apply(listeners[i].context, args);
					}
				}
			}
			return true;
		};
		EventEmitter2.prototype.on = function on(event, fn, context) {
			return addListener(this, event, fn, context, false);
		};
		EventEmitter2.prototype.once = function once(event, fn, context) {
			return addListener(this, event, fn, context, true);
		};
		EventEmitter2.prototype.removeListener = function removeListener(event, fn, context, once) {
			var evt = prefix ? prefix + event : event;
			if (!this._events[evt]) return this;
			if (!fn) {
				clearEvent(this, evt);
				return this;
			}
			var listeners = this._events[evt];
			if (listeners.fn) {
				if (listeners.fn === fn && (!once || listeners.once) && (!context || listeners.context === context)) clearEvent(this, evt);
			} else {
				for (var i = 0, events = [], length = listeners.length; i < length; i++) if (listeners[i].fn !== fn || once && !listeners[i].once || context && listeners[i].context !== context) events.push(listeners[i]);
				if (events.length) this._events[evt] = events.length === 1 ? events[0] : events;
				else clearEvent(this, evt);
			}
			return this;
		};
		EventEmitter2.prototype.removeAllListeners = function removeAllListeners(event) {
			var evt;
			if (event) {
				evt = prefix ? prefix + event : event;
				if (this._events[evt]) clearEvent(this, evt);
			} else {
				this._events = new Events();
				this._eventsCount = 0;
			}
			return this;
		};
		EventEmitter2.prototype.off = EventEmitter2.prototype.removeListener;
		EventEmitter2.prototype.addListener = EventEmitter2.prototype.on;
		EventEmitter2.prefixed = prefix;
		EventEmitter2.EventEmitter = EventEmitter2;
		module.exports = EventEmitter2;
	})(eventemitter3);
	return eventemitter3.exports;
}
var EventEmitter = /* @__PURE__ */ getDefaultExportFromCjs(requireEventemitter3());
var urlAlphabet = "useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";
var random = (bytes) => crypto.getRandomValues(new Uint8Array(bytes));
var customRandom = (alphabet, defaultSize, getRandom) => {
	let safeByteCutoff = 256 - 256 % alphabet.length;
	if (safeByteCutoff === 256) {
		let mask = alphabet.length - 1;
		return (size = defaultSize) => {
			if (!size) return "";
			let id = "";
			while (true) {
				let bytes = getRandom(size);
				let j = size;
				while (j--) {
					id += alphabet[bytes[j] & mask];
					if (id.length >= size) return id;
				}
			}
		};
	}
	let step = Math.ceil(409.6 * defaultSize / safeByteCutoff);
	return (size = defaultSize) => {
		if (!size) return "";
		let id = "";
		while (true) {
			let bytes = getRandom(step);
			let j = step;
			while (j--) if (bytes[j] < safeByteCutoff) {
				id += alphabet[bytes[j] % alphabet.length];
				if (id.length >= size) return id;
			}
		}
	};
};
var customAlphabet = (alphabet, size = 21) => customRandom(alphabet, size | 0, random);
var nanoid = (size = 21) => {
	let id = "";
	let bytes = crypto.getRandomValues(new Uint8Array(size |= 0));
	while (size--) id += urlAlphabet[bytes[size] & 63];
	return id;
};
function textOf({ epoch, offset }) {
	return `${epoch}.${offset}`;
}
function positionOf(at) {
	const [, epoch, offset] = typeof at === "string" && /^([A-Za-z0-9_-]{1,64})\.(\d{1,15})$/.exec(at) || [];
	return epoch === void 0 ? void 0 : {
		epoch,
		offset: Number(offset)
	};
}
var NOT_METHODS = /* @__PURE__ */ new Set([
	"then",
	"toString",
	"valueOf"
]);
function toJSON(key) {
	return shownAs("remote", "`remote` of a peer", "write `peer.id`", key);
}
function remoteOf(call) {
	return new Proxy(Object.freeze({}), { get(_target, method) {
		if (typeof method === "symbol" || NOT_METHODS.has(method)) return void 0;
		if (method === "toJSON") return toJSON;
		return (params, options) => call(method, params, options);
	} });
}
function callerOf(calls) {
	return {
		remote: remoteOf(calls.request),
		...calls
	};
}
var IncomingCall = class {
	/** Made when the handler first reads `signal`. */
	#controller;
	constructor(id, method, params, slot) {
		this.before = void 0;
		this.after = void 0;
		this.state = "running";
		this.abortCause = void 0;
		this.awaited = void 0;
		this.frame = void 0;
		this.listeners = void 0;
		this.id = id;
		this.method = method;
		this.params = params;
		this.slot = slot;
	}
	/** Aborts when the caller no longer waits. */
	get signal() {
		if (this.#controller === void 0) {
			this.#controller = new AbortController();
			if (this.abortCause !== void 0) this.#controller.abort(this.abortCause.reason);
		}
		return this.#controller.signal;
	}
	/** Whether the caller waits for the response. */
	get isAwaited() {
		return this.state === "running" && this.abortCause === void 0;
	}
	/** Aborts the handler now, or when it first reads `signal`. Also aborts a stream that is the result of an answered call. */
	abort(cause) {
		if (this.abortCause !== void 0) return;
		this.abortCause = cause;
		this.#controller?.abort(cause.reason);
	}
	/**
	* Calls `listener` once: with true right after the handler's result was handed to the connection (in a batch, with the
	* reply to all of it), with false when an error or nothing is answered, or the connection has ended. Never calls it for a
	* notification. Throws if the call is answered already.
	*/
	onReply(listener) {
		if (this.state === "answered") throw new Error(`"${this.method}" is answered already`);
		(this.listeners ??= []).push(listener);
	}
};
var IncomingCalls = class {
	/** Calls whose handler has not returned, or whose promise is not settled. */
	#calls;
	/** How many requests, and how many notifications, wait for the promise of their handler. */
	#requests;
	#notifications;
	/** Made with the first malformed message. */
	#countMalformed;
	/** The handlers that this peer added to those of its config. */
	#added;
	/** `previous`: the calls of the connection that this one follows, whose added handlers stay. */
	constructor(connection, previous) {
		this.onIdle = void 0;
		this.#requests = 0;
		this.#notifications = 0;
		this.namelessErrors = 0;
		this.connection = connection;
		if (previous !== void 0) this.#added = previous.#added;
		const { maxMessagesPerSecond } = connection.config.limits;
		this.takeRate = maxMessagesPerSecond === Infinity ? void 0 : rateLimit(maxMessagesPerSecond);
	}
	/** How many calls wait for the promise of their handler. */
	get running() {
		return this.#requests + this.#notifications;
	}
	/** Adds a handler for this peer only, over one in `methods`. Returns a function that removes the handler. */
	handle(method, handler) {
		const added = this.#added ??= /* @__PURE__ */ new Map();
		if (added.has(method)) throw new Error(`\`${method}\` has a handler already`);
		added.set(method, handler);
		return () => {
			if (added.get(method) === handler) added.delete(method);
		};
	}
	/** Starts a request or a notification, or refuses it. The response to a request goes into `slot`. */
	receive(kind, message, slot) {
		const { connection } = this;
		const { config, counts } = connection;
		const { maxInFlight, maxMessagesPerSecond } = config.limits;
		if (kind === "invalid") {
			const echoedId = isObject(message) && isLoneId(message) ? null : idOf(message);
			return this.refuse(echoedId, InvalidRequest, "Invalid Request", slot);
		}
		const { id, method, params } = message;
		const isRequest = id !== void 0;
		if (isRequest) counts.requestsReceived++;
		else counts.notificationsReceived++;
		if (this.takeRate?.() === false) {
			counts.refusedRate++;
			const error = {
				code: Busy,
				message: "Too many messages",
				data: { maxMessagesPerSecond }
			};
			if (isRequest) this.respond(id, encodeError$1(id, error), slot);
			return;
		}
		const handler = this.#handlerOf(method);
		if (config.protocolMethods.has(method) && (handler === void 0 || !isRequest) && this.#receiveProtocol(message, slot)) {
			if (handler === void 0 || method !== config.dialect.cancel.method) return;
		}
		if ((isRequest ? this.#requests : this.#notifications) >= maxInFlight) {
			counts.refusedBusy++;
			if (isRequest) this.respond(id, encodeError$1(id, BUSY), slot);
			else connection.reportToListeners(() => new RpcError(BUSY.code, BUSY.message), {
				method,
				id
			});
		} else if (isRequest && handler === void 0 && config.fallback === void 0 && config.around === void 0) this.respond(id, encodeError$1(id, METHOD_NOT_FOUND), slot);
		else this.#start(new IncomingCall(id, method, params, slot), handler);
	}
	/** Returns whether a cancel, or a message of a feature, was taken. The dialect of an application may throw for any params. */
	#receiveProtocol(message, slot) {
		const { connection } = this;
		try {
			if (message.method !== connection.config.dialect.cancel.method || "id" in message) return connection.parts.first("receive", message, slot) !== void 0;
			this.#cancel(message.params);
			return true;
		} catch (error) {
			connection.report(error, {
				method: message.method,
				id: idOf(message) ?? void 0
			});
			return true;
		}
	}
	#handlerOf(method) {
		return this.#added?.get(method) ?? this.connection.config.methods.get(method);
	}
	/** Runs the handler, and answers at once unless it returns a promise. */
	#start(call, handler) {
		const { config } = this.connection;
		const context = new CallContext(call, this.connection);
		(this.#calls ??= new List()).add(call);
		let result;
		try {
			if (config.around !== void 0) result = this.#runAround(call, context);
			else if (handler !== void 0 && config.checkParams === void 0) result = handler(call.params, context);
			else result = this.#run(call, context, call.params);
			if (config.checks !== void 0) result = config.checks.checkSent("result", call.method, result);
			if (isThenable(result)) return this.#await(call, result, encodeReturned);
		} catch (error) {
			unlink(call);
			return this.#answer(call, encodeFailure, error);
		}
		unlink(call);
		this.#answer(call, encodeReturned, result);
	}
	#runAround(call, context) {
		const { method, id, params } = call;
		const record = {
			direction: "incoming",
			peer: context.peer,
			method,
			id,
			params,
			context
		};
		const next = () => promised(() => this.#run(call, context, record.params));
		return this.connection.config.around(record, next);
	}
	#run(call, context, params) {
		const { method } = call;
		const { fallback, checkParams } = this.connection.config;
		const handler = this.#handlerOf(method) ?? (isInternalMethod(method) ? void 0 : fallback);
		if (handler !== void 0) {
			if (checkParams === void 0) return handler(params, context);
			return checkParams(method, params, (checked) => handler(checked, context));
		}
		if (call.id !== void 0) throw new RpcError(METHOD_NOT_FOUND.code, METHOD_NOT_FOUND.message);
		this.connection.emit("notification", method, params);
	}
	/** Waits for the promise of a handler or of its stream. Then answers with its value by `encode`, or with its error. */
	#await(call, result, encode2) {
		call.frame ??= this.connection.transport.currentFrame;
		call.frame?.keep();
		call.awaited = result;
		this.#count(call, 1);
		try {
			Promise.resolve(result).then((value) => this.#settle(call, result, encode2, value), (error) => this.#settle(call, result, encodeFailure, error));
		} catch (error) {
			this.#settle(call, result, encodeFailure, error);
		}
	}
	/**
	* Ends the wait for a promise, which has settled. A promise with a `then` of its own may settle several times: only its first
	* outcome counts.
	*/
	#settle(call, promise, encode2, outcome) {
		if (call.awaited !== promise) return;
		call.awaited = void 0;
		unlink(call);
		this.#count(call, -1);
		call.frame?.drop();
		this.#answer(call, encode2, outcome);
		if (this.onIdle !== void 0 && this.running === 0) this.onIdle();
	}
	/**
	* Sends the response that `encode` returns for `outcome`, or the error that it throws. Sends nothing for `undefined`, and in some dialects
	* if the call was cancelled.
	*/
	#answer(call, encode2, outcome) {
		let isResult = encode2 !== encodeFailure;
		let text;
		try {
			text = encode2(this, call, outcome);
		} catch (error) {
			isResult = false;
			text = encodeFailure(this, call, error);
		}
		if (text === void 0) return;
		const { slot, abortCause, listeners } = call;
		const isUnwanted = abortCause !== void 0 && !this.connection.config.dialect.cancel.isAnswered;
		call.state = "answered";
		call.params = void 0;
		const onSent = listeners && ((isWhole) => listeners.forEach((listener) => listener(isWhole)));
		if (isUnwanted || !isResult) onSent?.(false);
		if (isUnwanted) slot.leaveOut();
		else this.respond(call.id, text, slot, isResult ? onSent : void 0);
	}
	#count(call, by) {
		if (call.id === void 0) this.#notifications += by;
		else this.#requests += by;
	}
	/** Answers a call with the stream that its handler returned. The call runs until the first values are there. */
	stream(call, source) {
		const json = this.connection.parts.get("streams").serve(source, call);
		this.#calls.add(call);
		this.#await(call, json, encodeStream);
	}
	/** Aborts the calls that a cancel names: several if the caller has used an id twice. Ignores an unknown id. */
	#cancel(params) {
		const { config, madeParts } = this.connection;
		const id = config.dialect.cancel.idOf(params);
		if (id === void 0) return;
		let error;
		const cause = { get reason() {
			return error ??= new DOMException("the caller cancelled", "AbortError");
		} };
		(this.#calls?.toArray((call) => call.id === id && !isExempt(config.dialect, call.method)))?.forEach((call) => call.abort(cause));
		madeParts?.each("cancelled", id, cause);
	}
	/** Aborts every call that runs: the connection has ended. */
	abortAll(reason) {
		for (const call of this.#calls?.toArray() ?? []) call.abort({ reason });
	}
	/**
	* Sends a response, or -32008 in its place if it is too long. `onSent` is called once the response was sent or will not be
	* sent, with whether the caller gets it as it is.
	*/
	respond(id, encoded, slot, onSent) {
		const text = sentForm(encoded, this.connection.transport.takesBytes);
		const isNameless = id === null && isNamelessError(text);
		if (isNameless) this.namelessErrors++;
		if (!slot.reserveBytes(text)) onSent?.(false);
		else if (slot.put(text, onSent) || !exceeds(text, this.maxReplyBytes)) return;
		if (id === null && !isNameless) this.namelessErrors++;
		slot.put(encodeTooLarge(id, this.maxReplyBytes));
	}
	/** Refuses a malformed message, and counts it. Ends the connection if there were too many. */
	refuse(id, code, message, slot) {
		const { connection } = this;
		connection.counts.malformed++;
		const { maxMalformedPerMinute } = connection.config.limits;
		if ((this.#countMalformed ??= minuteCount())() <= maxMalformedPerMinute) this.putError(id, {
			code,
			message
		}, slot);
		else connection.end({
			code: PolicyViolation,
			reason: `more than ${maxMalformedPerMinute} malformed messages in a minute`
		});
	}
	/** Puts an error into `slot`, whatever its length. */
	putError(id, error, slot) {
		if (id === null) this.namelessErrors++;
		slot.put(encodeError$1(id, error));
	}
	/** Longest response, or reply to a batch, in bytes of UTF-8. */
	get maxReplyBytes() {
		const { config, transport } = this.connection;
		return Math.min(config.limits.maxReplyBytes, transport.maxMessageBytes ?? Infinity);
	}
	/** Returns whether a response that is not in a batch is short enough for this side. A link refuses what is too long for the other side. */
	reserveBytes(text) {
		return !exceeds(text, this.connection.config.limits.maxReplyBytes);
	}
	/** Sends a response that is not in a batch. */
	put(text, onSent) {
		const { connection } = this;
		const isTaken = connection.flow.send(text);
		onSent?.(isTaken && connection.ended === void 0);
		return isTaken;
	}
	/** What is sent by itself needs no note of what is not answered. */
	leaveOut() {}
	/**
	* Returns the error that answers a call to `method`. It says what an RpcError of this side says, whose cause is reported. Anything
	* else may hold secrets, so it is reported here, and answered with what the hook says or with -32603.
	*/
	encodeFailure(id, method, error) {
		let reason = error;
		try {
			if (error instanceof RpcError && !isReceived(error)) {
				const text = encodeError$1(id, error);
				if (error.cause !== void 0) this.reportFailure(id, method, error);
				return text;
			}
		} catch (failure) {
			reason = failure;
		}
		this.reportFailure(id, method, reason);
		return encodeError$1(id, this.connection.hooks.answerFor?.(reason) ?? {
			code: -32603,
			message: "Internal error"
		});
	}
	/** Reports what a call to `method` failed with. For an RpcError that was received, reports an error that has it as its cause. */
	reportFailure(id, method, error) {
		const message = `a call by "${method}" failed`;
		const failure = isReceived(error) ? new Error(message, { cause: error }) : error;
		const isServed = this.#handlerOf(method) !== void 0 || this.connection.config.protocolMethods.has(method);
		this.connection.report(failure, {
			method,
			id
		}, isServed ? method : "fallback or around");
	}
};
function encodeReturned(calls, call, result) {
	const { id, method } = call;
	if (id === void 0) return discard(calls, call, result);
	try {
		if (isStreamed(result)) return calls.stream(call, result);
		return calls.connection.madeParts?.first("encode", call, result) ?? encodeResult$1(id, result);
	} catch (error) {
		throw error instanceof TypeError ? new TypeError(`The result of "${method}": ${error.message}`, { cause: error }) : error;
	}
}
function discard({ connection }, call, result) {
	try {
		if (isStreamed(result)) observed(connection.parts.get("streams").serve(result, call));
		else connection.madeParts?.first("encode", call, result);
	} catch {}
}
function encodeStream(_calls, call, encode2) {
	return encodeRawResult(call.id, encode2());
}
function encodeFailure(calls, call, error) {
	const { id, method, abortCause } = call;
	if (id !== void 0 && abortCause === void 0) return calls.encodeFailure(id, method, error);
	if (abortCause === void 0 || !isAbort(error, abortCause.reason)) calls.reportFailure(id, method, error);
	return id === void 0 ? void 0 : encodeError$1(id, CANCELLED);
}
var CANCELLED = {
	code: RequestCancelled,
	message: "Request cancelled"
};
var BUSY = {
	code: Busy,
	message: "Server is busy"
};
var METHOD_NOT_FOUND = {
	code: MethodNotFound,
	message: "Method not found"
};
var readContext;
var CallContext = class {
	#call;
	#connection;
	constructor(call, connection) {
		this.peer = connection.peer;
		this.method = call.method;
		this.id = call.id;
		this.#call = call;
		this.#connection = connection;
	}
	/** Aborts when the caller no longer waits for the response, with the reason. */
	get signal() {
		return this.#call.signal;
	}
	/**
	* Reports progress to a caller that asked for it. Does nothing for another caller, and after the response. Throws a `TypeError` if
	* the peer does not use the feature `progress`.
	*/
	get progress() {
		return this.#connection.parts.get("progress").reporterOf(this.#call);
	}
	/** The server that the peer is of, if it is of one. */
	get server() {
		return this.#connection.hooks.server;
	}
	static {
		readContext = (context) => #call in context ? {
			call: context.#call,
			connection: context.#connection
		} : void 0;
	}
};
function callOf(context) {
	return typeof context === "object" && context !== null ? readContext(context) : void 0;
}
var FEWEST_PLACES = 16;
var MOST_KEPT = 256;
var CallTable = class {
	constructor() {
		this.size = 0;
		this.#places = places(FEWEST_PLACES);
	}
	#places;
	/** Returns the call of an id, which may be any value: `"1"` is not 1. */
	get(id) {
		if (typeof id !== "number") return void 0;
		let call = this.#places[id & this.#places.length - 1];
		while (call !== void 0 && call.id !== id) call = call.nextInPlace;
		return call;
	}
	/** Adds a call that is in no table. */
	add(call) {
		if (this.size === this.#places.length) this.#resize(this.size * 2);
		const place = call.id & this.#places.length - 1;
		call.nextInPlace = this.#places[place];
		this.#places[place] = call;
		this.size++;
	}
	/** Removes the call of an id, which may be any value. Returns the call; `undefined` if there is none. */
	remove(id) {
		if (typeof id !== "number") return void 0;
		const place = id & this.#places.length - 1;
		let previous;
		let call = this.#places[place];
		while (call !== void 0 && call.id !== id) {
			previous = call;
			call = call.nextInPlace;
		}
		if (call === void 0) return void 0;
		if (previous === void 0) this.#places[place] = call.nextInPlace;
		else previous.nextInPlace = call.nextInPlace;
		call.nextInPlace = void 0;
		if (--this.size === 0 && this.#places.length > MOST_KEPT) this.#places = places(FEWEST_PLACES);
		return call;
	}
	/** Returns all calls, in the order they were made. */
	toArray() {
		return this.#unordered().sort((a, b) => a.id - b.id);
	}
	#unordered() {
		const calls = [];
		for (const first of this.#places) for (let call = first; call !== void 0; call = call.nextInPlace) calls.push(call);
		return calls;
	}
	#resize(length) {
		const calls = this.#unordered();
		this.#places = places(length);
		this.size = 0;
		for (const call of calls) this.add(call);
	}
};
function places(length) {
	return Array.from({ length }, () => void 0);
}
var OutgoingCalls = class {
	#connection;
	/** Made with the first call: most peers of a server never call. */
	#table;
	#lastId;
	/** `previous`: the calls of the connection that this one follows. */
	constructor(connection, previous) {
		this.whyNoCalls = void 0;
		this.#lastId = 0;
		this.#connection = connection;
		if (previous !== void 0) this.#lastId = previous.#lastId;
	}
	/** Why no call can be made; `undefined` while calls can be made. */
	get ended() {
		return this.whyNoCalls ?? this.#connection.ended;
	}
	/** Takes the messages of these calls. */
	get sink() {
		return this.#connection.flow.sink;
	}
	/** How many calls are pending. */
	get size() {
		return this.#table?.size ?? 0;
	}
	/**
	* Calls a method, and promises its result. With `sink`, the call is sent through it. With `id`, which must be a new one, the
	* call bypasses `around`. Never throws.
	*/
	request(method, params, options, sink, id) {
		const connection = this.#connection;
		const { around, settings: defaults, checks } = connection.config;
		if (around !== void 0 && id === void 0) return this.#requestAround(around, method, params, options, sink);
		let resolve;
		const settled = new Promise((settle) => resolve = settle);
		const result = checks?.checkReceived("result", method, settled) ?? settled;
		let call;
		let text;
		try {
			const settings = options === void 0 ? defaults : settingsOf(options, defaults);
			call = new OutgoingCall(this, id ?? ++this.#lastId, method, settings, resolve);
			if (settings.signal?.aborted) throw settings.signal.reason;
			if ((options?.retry ?? (connection.isConnecting || defaults.retry)) && sink === void 0) call.again = { params };
			text = this.#encode(call, params);
			if (this.ended !== void 0) throw new ConnectionLostError(method, "not-sent", this.ended);
		} catch (error) {
			call?.onSettled?.();
			resolve(failed(error, method));
			return result;
		}
		(this.#table ??= new CallTable()).add(call);
		const { timeoutMs, signal, maxTotalTimeoutMs } = call.settings;
		setDeadline(call, timeoutMs);
		if (signal !== void 0 || maxTotalTimeoutMs !== Infinity) this.#watch(call);
		connection.counts.requestsSent++;
		if (!(sink ?? connection.flow.sink).send(text, call)) this.refused(text, call);
		return result;
	}
	#encode(call, params) {
		const connection = this.#connection;
		const given = call.settings.onProgress === void 0 ? params : connection.parts.get("progress").ask(call, params);
		return connection.madeParts?.first("encode", call, given) ?? encodeRequest$1(call.id, call.method, given);
	}
	#requestAround(around, method, params, options, sink) {
		let unused = ++this.#lastId;
		const { peer } = this.#connection;
		const record = {
			direction: "outgoing",
			peer,
			method,
			id: unused,
			params,
			context: void 0
		};
		const next = () => {
			const id = unused ?? ++this.#lastId;
			unused = void 0;
			return observed(this.request(method, record.params, options, sink, id));
		};
		return promised(() => around(record, next)).catch((error) => failed(error, method));
	}
	/** Calls a method past `around`, and by default past the opening queue. */
	requestDirectly(method, params, options, sink = this.#connection.flow) {
		return this.request(method, params, options, sink, ++this.#lastId);
	}
	/** Watches the signal and the total timeout of a call. */
	#watch(call) {
		const { maxTotalTimeoutMs, signal } = call.settings;
		if (maxTotalTimeoutMs !== Infinity) {
			const total = {
				deadline: 0,
				expire: () => call.timeOut(maxTotalTimeoutMs)
			};
			setDeadline(total, maxTotalTimeoutMs);
			call.whenSettled(() => clearDeadline(total));
		}
		if (signal === void 0) return;
		call.whenSettled(onAbort(signal, () => call.calls.giveUp(call, signal.reason)));
	}
	/** Notifies. Returns whether the message was taken. Throws a `TypeError` for bad options, and for a message that cannot be encoded. */
	notify(method, params, sink, options) {
		const text = encodeNotification$1(method, params);
		const { counts, config } = this.#connection;
		const live2 = options && this.#connection.parts.get("live").check(method, options);
		if (live2?.maySend() === false) return false;
		counts.notificationsSent++;
		if (config.around === void 0) return this.#deliverNotification(text, sink, live2?.handle);
		return this.#notifyAround(config.around, method, params, sink, live2);
	}
	#notifyAround(around, method, params, sink, live2) {
		const { peer } = this.#connection;
		const record = {
			direction: "outgoing",
			peer,
			method,
			id: void 0,
			params,
			context: void 0
		};
		let isTaken = this.ended === void 0;
		const deliver = () => {
			isTaken = live2?.maySend() !== false && this.#deliverNotification(encodeNotification$1(method, record.params), sink, live2?.handle);
		};
		promised(() => around(record, () => promised(deliver))).catch((error) => this.#connection.report(error, {
			method,
			id: void 0
		}));
		return isTaken;
	}
	#deliverNotification(text, sink, handle) {
		const isTaken = (sink ?? this.sink).send(text, handle);
		if (!isTaken) this.refused(text);
		return isTaken;
	}
	/**
	* Handles a message that the link has refused. A call with `retry` stays pending for the next connection, if the message is not too
	* long and few are kept. Other calls reject. A notification that is too long is reported, and not thrown: the other side chooses
	* that length, and must not make a loop over many peers fail.
	*/
	refused(text, handle) {
		const connection = this.#connection;
		const { maxMessageBytes = Infinity, takesBytes } = connection.transport;
		const sent = sentForm(text, takesBytes);
		const bytes = this.ended === void 0 && exceeds(sent, maxMessageBytes) ? utf8Bytes(sent) : void 0;
		const calls = handle === void 0 ? [] : callsOf(handle);
		if (calls.length === 0) {
			if (bytes !== void 0) {
				const method = methodOf(text);
				connection.report(new TooLargeError(method, bytes, maxMessageBytes), {
					method,
					id: void 0
				});
			}
			return;
		}
		if (handle?.hasRetry === true && bytes === void 0 && this.ended === void 0 && connection.flow.keepRefused(text)) return;
		const cause = this.ended ?? /* @__PURE__ */ new Error(connection.flow.isSuspended ? "the queue is full" : "the connection is closing");
		for (const { id, method, mayHaveRun } of calls) {
			const error = bytes === void 0 ? new ConnectionLostError(method, mayHaveRun ? "unknown" : "not-sent", cause) : new TooLargeError(method, bytes, maxMessageBytes);
			this.fail(id, error);
		}
	}
	/** Moves a call of the previous connection to this one, and sends it again. Returns false if it cannot be encoded again. */
	#adopt(call, previous) {
		let text;
		try {
			text = this.#encode(call, call.again.params);
		} catch {
			return false;
		}
		if (this.ended !== void 0 || previous.#table.remove(call.id) === void 0) return false;
		call.calls = this;
		if (call.sent) call.again = {
			...call.again,
			wasSent: true
		};
		call.sent = false;
		(this.#table ??= new CallTable()).add(call);
		if (!this.sink.send(text, call)) this.refused(text, call);
		return true;
	}
	/** Returns the pending call of that id. */
	get(id) {
		return this.#table?.get(id);
	}
	/**
	* Returns true if a broken response is treated as a response. An object with only an id is one if a call has that id. Otherwise it is a
	* request without a method, and is answered, because its sender expects a response.
	*/
	isMeantAsResponse(value) {
		return !isLoneId(value) || this.get(value.id) !== void 0;
	}
	/** Settles the call that a response names. A response is never answered: two peers would loop. `request` has attached the check of the result. */
	settle(kind, response, slot) {
		const call = this.#take(response.id);
		if (call === void 0) this.#receiveUnmatched(kind, response, slot);
		else if (kind === "broken") call.reject(brokenResponse(response));
		else if (response.result !== void 0) call.resolve(response.result);
		else {
			const { code, message, data } = response.error;
			call.reject(receivedError(call.method, code, message, data));
		}
	}
	/**
	* Counts a response that names no pending call: it is late, repeated or unsolicited. Some servers answer notifications too,
	* so it is no reason to close.
	*
	* An error with id null means that the other side could not read a message (JSON-RPC 2.0, section 5). If this side has
	* sent errors with id null, the received one may answer one of those (M-61). Otherwise, a pending batch may reject with it (M-58).
	*/
	#receiveUnmatched(kind, response, slot) {
		const connection = this.#connection;
		connection.counts.unmatched++;
		if (kind !== "response" || response.id !== null || response.result !== void 0) return;
		if (connection.incoming.namelessErrors > 0) connection.incoming.namelessErrors--;
		else if (connection.madeParts?.first("receiveUnknown", response, slot)) return;
		const { code, message, data } = response.error;
		connection.reportToListeners(() => new RpcError(code, message, data));
	}
	/** Rejects one call, if it is still pending. */
	fail(id, reason) {
		this.#take(id)?.reject(reason);
	}
	/** Rejects a pending call whose caller has given up. Cancels its message if that is queued, else cancels the call on the other side. */
	giveUp(call, reason) {
		if (this.#take(call.id) === void 0) return;
		call.reject(reason);
		if (call.canCancelMessage) this.#connection.flow.cancel(call);
		else this.#cancel(call, reason);
	}
	/** Cancels a call that was sent, or is in a batch. */
	#cancel(call, reason) {
		const connection = this.#connection;
		const { flow, config, speaksDialect, madeParts } = connection;
		const { cancel } = config.dialect;
		const mayCancel = speaksDialect || madeParts?.first("mustCancel", call) === true;
		if (!mayCancel && (call.sent || flow.openingQueue === void 0)) return;
		if (isExempt(config.dialect, call.method)) return;
		try {
			const text = encodeNotification$1(cancel.method, cancel.params(call.id, reason));
			const handle = mayCancel ? { sent: false } : new OptionalCancel();
			if (!(call.sent ? flow : flow.sink).send(text, handle)) this.refused(text);
		} catch (error) {
			connection.report(error, {
				method: call.method,
				id: call.id
			});
		}
	}
	/**
	* Rejects every call: the connection has ended. Calls that are made again continue in `next`: those that were not sent, and with
	* `retry: "always"` also those that were. So do queued notifications of a peer that was never open, in order with its calls.
	*/
	rejectAll(cause, next) {
		const { flow, isConnecting } = this.#connection;
		const end = (call) => {
			if (!call.sent) flow.cancel(call.handle);
			if (call.again !== void 0 && (!call.sent || call.settings.retry === "always") && next !== void 0 && next.#adopt(call, this)) return;
			this.fail(call.id, new ConnectionLostError(call.method, call.mayHaveRun ? "unknown" : "not-sent", cause));
		};
		if (isConnecting) for (const [handle, text] of flow.openingQueue ?? []) {
			const calls = callsOf(handle);
			calls.forEach(end);
			if (calls.length === 0) next?.sink.send(text, handle);
		}
		this.#table?.toArray().forEach(end);
	}
	/**
	* Removes a pending call that settles now. Only `#adopt` removes one besides, which stays pending. The other side chooses the id, so it
	* may be any value.
	*/
	#take(id) {
		const call = this.#table?.remove(id);
		if (call === void 0) return void 0;
		clearDeadline(call);
		call.onSettled?.();
		return call;
	}
};
function methodOf(text) {
	const [message] = [JSON.parse(typeof text === "string" ? text : text.json)].flat();
	return message.method;
}
function newCounts() {
	return {
		requestsSent: 0,
		notificationsSent: 0,
		requestsReceived: 0,
		notificationsReceived: 0,
		refusedBusy: 0,
		refusedRate: 0,
		malformed: 0,
		unmatched: 0,
		dropped: 0
	};
}
function addCounts(total, counts) {
	for (const name of Object.keys(total)) total[name] += counts[name];
}
var Connection = class Connection {
	#replace;
	/** Why this side ended the connection, if it had a reason of its own. */
	#cause;
	/** `previous`: the connection that this one follows. */
	constructor(peer, transport, config, hooks, replace, previous) {
		this.ended = this.closeInfo = this.madeParts = void 0;
		this.isConnecting = previous?.isConnecting ?? transport.isConnecting === true;
		this.onClosed = previous?.onClosed;
		this.onOpened = previous?.onOpened;
		this.peer = peer;
		this.transport = transport;
		this.config = config;
		this.hooks = hooks;
		this.#replace = replace;
		this.counts = previous?.counts ?? newCounts();
		const isDown = this.isConnecting || previous !== void 0;
		this.flow = new config.Flow(this, isDown);
		this.outgoing = new OutgoingCalls(this, previous?.outgoing);
		this.incoming = new IncomingCalls(this, previous?.incoming);
	}
	/** The parts of the features. Most connections never need one. */
	get parts() {
		return this.madeParts ??= new Parts(this.config.use, this);
	}
	/** Receives one text. The reply goes into `slot`. */
	receive(text, slot) {
		this.dispatch(parse(text), slot);
	}
	/**
	* Receives one parsed message, or a member of a batch; `undefined` for text that is not JSON. `slot` takes the reply to a request and to
	* a malformed message. Any other message leaves it out.
	*/
	dispatch(value, slot = this.incoming) {
		if (this.ended !== void 0) return;
		let kind = classify(value);
		if (kind === "invalid" || kind === "broken") {
			if (value === void 0) return this.incoming.refuse(null, ParseError, "Parse error", slot);
			if (this.parts.first("receiveUnknown", value, slot)) return;
			if (this.config.dialect.readsNullParams && isObject(value) && value.params === null) {
				delete value.params;
				kind = classify(value);
			}
			if (kind === "broken" && !this.outgoing.isMeantAsResponse(value)) kind = "invalid";
		}
		if (kind === "response" || kind === "broken") this.outgoing.settle(kind, value, slot);
		else this.incoming.receive(kind, value, slot);
		if (slot !== this.incoming && kind !== "request" && kind !== "invalid") slot.leaveOut();
	}
	/** Ends the connection, whose transport has ended. */
	closed(reported) {
		if (this.closeInfo !== void 0) return;
		const info = this.#cause === void 0 ? reported : {
			...reported,
			...this.#cause
		};
		this.closeInfo = info;
		if (this.ended === void 0) this.#stop(errorOfEnd("closed", info));
		this.hooks.closed?.(this.peer, info);
		this.emit("close", info);
		this.onClosed?.(info);
	}
	suspended() {
		const { isSuspended } = this.flow;
		this.flow.suspended();
		if (!isSuspended) this.emit("suspend");
	}
	drained() {
		this.flow.drained();
	}
	missed(count2) {
		if (this.ended === void 0) this.emit("missed", { count: count2 });
	}
	resumed() {
		this.flow.resumed();
		this.madeParts?.each("resumed");
		if (!this.config.hasOnOpen || this.flow.openingQueue === void 0) this.release();
	}
	lost(error) {
		const { transport } = this;
		const next = new Connection(this.peer, transport, this.config, this.hooks, this.#replace, this);
		this.#replace(this.peer, next);
		transport.start(next);
		this.#settleAll(error, next.outgoing);
		if (next.ended === void 0 && !this.isConnecting) this.emit("lost", error);
	}
	/** Messages of the application flow, for the first time or again, unless the socket is lost by now: `onOpen` is done. */
	release() {
		if (this.ended !== void 0) return;
		this.flow.release((text, handle) => {
			if (!this.speaksDialect) return handle instanceof OptionalCancel ? void 0 : text;
			const progress2 = this.madeParts?.find("progress");
			return progress2 === void 0 ? text : progress2.rewriteQueued(text, handle);
		});
		if (this.ended !== void 0 || this.flow.isSuspended) return;
		if (!this.isConnecting) return this.emit("resume");
		this.isConnecting = false;
		this.#reportOpening();
	}
	/** Whether messages of the dialect may be sent that the application did not write. */
	get speaksDialect() {
		return this.config.choseDialect || this.transport.isReciproc === true;
	}
	/** Emits an error that has no caller. `name`: where it was thrown, one of a bounded number of names. */
	report(error, call, name) {
		const isHeard = tell(this.peer, "error", [error, call]);
		if (!this.hooks.error?.(error, this.peer, call) && !isHeard && name !== void 0) warnOnce(this.hooks.warned ??= /* @__PURE__ */ new Set(), name, error);
	}
	/**
	* Emits an error that the other side can cause with each message. Its stack is expensive, so `make` runs only if there is a
	* listener.
	*/
	reportToListeners(make, call) {
		if (this.peer.listenerCount("error") > 0 || this.hooks.hasErrorListener?.()) this.report(make(), call);
	}
	/** Emits an event. What its listeners throw is reported. */
	emit(event, ...args) {
		if (this.peer.listenerCount(event) > 0) tell(this.peer, event, args, (error) => this.report(error));
	}
	/**
	* Ends the connection for a reason of this side, with any code. That reason is reported, whatever the other side answers. Calls reject
	* with `end.error` as their cause, if there is one.
	*/
	end(end) {
		const { code, reason, error } = end;
		if (this.ended === void 0) this.#cause = {
			code,
			reason: cutReason(reason),
			...error !== void 0 && { error }
		};
		this.close(end);
	}
	/** Ends the connection for the application. How the transport ended is reported. */
	close(end) {
		if (this.ended === void 0) this.flow.flush();
		if (this.ended !== void 0) return;
		this.#stop(errorOfEnd("closed on this side", end));
		const { transport } = this;
		const reason = cutReason(end.reason);
		transport.sayBye?.({
			...end,
			reason
		}, this.flow.stop());
		runReporting(() => transport.close(end.code, reason), (failure) => {
			this.report(failure);
			this.closed({
				code: Abnormal,
				reason: ""
			});
		});
	}
	#stop(cause) {
		this.#settleAll(cause);
		this.#reportOpening({ cause });
		this.hooks.ended?.(this.peer);
	}
	#reportOpening(failure) {
		this.onOpened?.(failure);
		this.onOpened = void 0;
	}
	/**
	* Settles every call, except those that `next` makes again. After this no call waits, no timer runs, and nothing of this connection
	* is received or sent.
	*/
	#settleAll(cause, next) {
		this.ended = cause;
		this.flow.stop();
		this.outgoing.rejectAll(cause, next);
		this.incoming.abortAll(cause);
		this.madeParts?.each("end", cause);
	}
};
var EVENTS$2 = {
	close: 0,
	suspend: 0,
	attempt: 0,
	resume: 0,
	lost: 0,
	missed: 0,
	notification: 0,
	error: 0
};
var aTransport = shape({
	start: anyFunction,
	send: anyFunction,
	close: anyFunction
});
var readConnection;
var replaceConnection;
var replaceAuth;
function connectionOf(peer) {
	return readConnection(peer);
}
function setAuth(peer, auth) {
	replaceAuth(peer, auth);
}
function configOf(options, features) {
	const checked = checkOptions("options", options, PEER_OPTIONS);
	return makeConfig({
		...checked,
		use: [...features ?? [], ...checked.use ?? []]
	});
}
function createPeer(transport, config, hooks) {
	return new Peer$1(transport, void 0, {
		config,
		hooks
	});
}
function startPeer(peer) {
	const connection = connectionOf(peer);
	connection.transport.start(connection);
}
function endPeer(peer, end) {
	connectionOf(peer).end(end);
}
function afterWork(peer, then) {
	const { budget } = connectionOf(peer).transport;
	if (budget?.hasWork !== true) return false;
	budget.add(then);
	return true;
}
var Peer$1 = class Peer extends EventEmitter {
	#connection;
	#auth;
	#data;
	#id;
	#remote;
	#opened;
	#closed;
	constructor(transport, options, checked) {
		super();
		aTransport(transport, "transport");
		const { config, hooks } = checked ?? {
			config: configOf(options, new.target.features),
			hooks: {}
		};
		this.#connection = new Connection(this, transport, config, hooks, replaceConnection);
		if (checked === void 0) transport.start(this.#connection);
	}
	/**
	* Server: what `authenticate` returned for this client, and `undefined` without `authenticate`. Replaced when the client resumes
	* its session or calls `reauthenticate()`, and then the server emits `refresh`. Client: `undefined`. Never sent.
	*/
	get auth() {
		return this.#auth;
	}
	/**
	* What the application keeps about this peer: an object that is empty at first. It lasts as long as the peer, also when the session
	* is resumed or lost. The library neither reads nor replaces it. Never sent. For its type, see `AppTypes`.
	*/
	get data() {
		return this.#data ??= {};
	}
	/** A random name for this peer. Made when first read, never sent. */
	get id() {
		return this.#id ??= nanoid();
	}
	/**
	* `"connecting"`: `open` has returned the peer, and `opened` is pending. `"open"`: messages flow. `"suspended"`: between the events
	* `suspend` and `resume`. `"closed"`: for good.
	*/
	get state() {
		const { ended, flow, isConnecting } = this.#connection;
		if (ended !== void 0) return "closed";
		return isConnecting ? "connecting" : flow.isSuspended ? "suspended" : "open";
	}
	/**
	* Resolves when the peer is open for the first time, and its `onOpen` is done. Rejects if the peer closes before: with a
	* `ConnectError`, with what `onOpen` failed with, with the reason of `signal`, or with an error that names the close. Calls that
	* were pending reject with a `ConnectionLostError` whose `cause` is the same. If it is not awaited, its rejection is ignored.
	*/
	get opened() {
		return this.#opened ??= observed(new Promise((resolve, reject) => {
			const connection = this.#connection;
			if (!connection.isConnecting) resolve();
			else if (connection.ended !== void 0) reject(connection.ended);
			else connection.onOpened = (failure) => failure === void 0 ? resolve() : reject(failure.cause);
		}));
	}
	/** Resolves when the connection has ended and its calls have rejected, with what `close` is emitted with. Never rejects. */
	get closed() {
		return this.#closed ??= new Promise((resolve) => {
			const { closeInfo } = this.#connection;
			if (closeInfo === void 0) this.#connection.onClosed = (info) => resolve(afterFailed(info));
			else resolve(closeInfo);
		});
	}
	get remote() {
		return this.#remote ??= remoteOf((method, params, options) => this.#connection.outgoing.request(method, params, options));
	}
	request(method, params, options) {
		return this.#connection.outgoing.request(method, params, options);
	}
	notify(method, params, options) {
		return this.#connection.outgoing.notify(method, params, void 0, options);
	}
	stream(method, params, options) {
		return this.#connection.parts.get("streams").stream(method, params, options);
	}
	/**
	* Reads a stream found inside params or a result, once. The receiver never guesses: elsewhere it is plain data. One that
	* came in params ends with the answer to its request. Throws a `TypeError` for what is no object. When the connection is
	* lost or closes, reading rejects with `ConnectionLostError` of outcome `"unknown"`: the call that the stream belongs to
	* was sent. The stream does not name that call, so `method` is `"$/enumerator/next"`.
	*/
	iterate(stream) {
		return this.#connection.parts.get("streams").iterate(stream);
	}
	/**
	* Makes a stream of an iterable, for any place in the params of a request or in a result, once. It is read a little
	* ahead (64 KiB) and no further than the other side reads, and not at all while the peer has no socket; one in params ends with its call, one in a result with the connection.
	* Then, and when the other side stops reading, the iterator's `return()` is called. A web stream, such as `blob.stream()`, is
	* read by its reader, which is then cancelled. Views are sent as bytes, if the peer uses `bytes`. Throws a `TypeError`
	* for what is neither an iterable nor a web stream.
	*/
	offer(source) {
		return this.#connection.parts.get("streams").offer(source);
	}
	/**
	* Returns the part of a feature on the present connection of this peer, which its `create` has made. After `lost`, it is another. Throws
	* a `TypeError` if the peer does not use the feature.
	*/
	feature(feature) {
		return this.#connection.parts.get(feature.name);
	}
	/** Starts a batch: its calls wait for `send()`, and time out from now on. Throws a `TypeError` if the peer does not use `batches`. */
	batch() {
		return callerOf(this.#connection.parts.get("batches").batch());
	}
	/**
	* Serves one more method on this peer, over one of that name in `methods`. Returns a function that removes the handler. A name of the reserved
	* `rpc.` space may be registered. Throws when this peer has such a handler already.
	*/
	handle(method, handler) {
		if (typeof method !== "string") throw expected("method", "a string", method);
		return this.#connection.incoming.handle(method, anyFunction(handler, "handler"));
	}
	/**
	* Client: sends a fresh `auth` on the open connection, such as a new token before the old one expires. Calls the function `auth`
	* with attempt number 0. Resolves when the server has accepted it: then `peer.auth` there is the new result of `authenticate`. If
	* the server refuses it, or the `principal` would change, the server closes the connection with 4401. While the peer is
	* suspended or not open yet it waits, and its timeout runs. A call that is made while another is pending shares its `auth` and its reply.
	*
	* Rejects as `request` does: with `ConnectionLostError` when the connection is lost or closes, with `TimeoutError` or the
	* signal's reason. Rejects with what the function `auth` threw, and with a `TypeError` if `connect` had no option `auth`, or the
	* server has not asked for it: it does not speak `reciproc.v1`, or has no `authenticate`. Only the server closes anything then. On a page, it needs the feature `renewal`.
	*/
	async reauthenticate(options) {
		return this.#connection.parts.get("renewal").reauthenticate(options);
	}
	/**
	* Closes the connection, and resolves when it has ended. If the other side does not complete the close within 5 s, the
	* connection ends with 1006. Pending calls reject at once with `ConnectionLostError`, and the
	* `signal` of every running handler aborts. `reason` is cut at 123 bytes. Rejects with a `TypeError`, and closes nothing,
	* when `code` is neither 1000 nor 3000 to 4999: the others are not an application's to send (RFC 6455, section 7.4). Send none of
	* 4000 to 4099, which have a meaning in `reciproc.v1`.
	*/
	async close(code = 1e3, reason = "") {
		this.#connection.close({
			code,
			reason: checkClose(code, reason)
		});
		await this.closed;
	}
	/**
	* Tries to connect now, if the client waits for its next attempt, also if the server asked it to wait. An open connection is only
	* checked, and only if it has a heartbeat: if the server does not answer a ping within 5 s, the client drops the socket and
	* reconnects. Returns false, and does nothing, if the peer is closed, or was not made by `open` or `connect`.
	*/
	reconnect() {
		const { ended, transport } = this.#connection;
		return ended === void 0 && transport.delegate?.reconnect?.() === true;
	}
	waitFor(event, options) {
		return new Promise((resolve, reject) => {
			const { signal } = checkOptions("options", options, { signal: optional(anySignal) });
			const { ended, closeInfo } = this.#connection;
			if (signal?.aborted) throw signal.reason;
			if (event === "close" && closeInfo !== void 0) return resolve([closeInfo]);
			if (event !== "close" && ended !== void 0) throw ended;
			const emitted = (...args) => resolve((leave(), args));
			const closed = () => reject((leave(), this.#connection.ended));
			this.once(event, emitted).once("close", closed);
			const ignore = signal && onAbort(signal, () => reject((leave(), signal.reason)));
			const leave = () => {
				this.off(event, emitted).off("close", closed);
				ignore?.();
			};
		});
	}
	/** Returns what happened on this connection so far, and how full everything is. Cheap: the numbers are counted anyway. */
	stats() {
		const { counts, outgoing, incoming, madeParts, flow, transport } = this.#connection;
		const { received: bytesReceived = 0, sent: bytesSent = 0 } = transport.traffic ?? {};
		return {
			...counts,
			pending: outgoing.size,
			running: incoming.running,
			streams: madeParts?.find("streams")?.size ?? 0,
			unsentBytes: flow.unsentBytes,
			bytesReceived,
			bytesSent
		};
	}
	/**
	* Returns `id`, for logs and test matchers. In a message it throws a `TypeError`, so that nothing sends by mistake what the application
	* keeps in a peer: send `peer.id`, or those fields of your own data that the other side may know.
	*/
	toJSON(key) {
		return shownAs(this.id, "peer", "write `peer.id`", key);
	}
	/** `close()`, for `await using`. */
	[Symbol.asyncDispose]() {
		return this.close();
	}
	/** The class and the `id`: test matchers find two peers different, and `console.log` shows the `id`. */
	get [Symbol.toStringTag]() {
		return `Peer ${this.id}`;
	}
	static {
		readConnection = (peer) => peer.#connection;
		replaceAuth = (peer, auth) => void (peer.#auth = auth);
		replaceConnection = (peer, next) => {
			peer.#connection = next;
		};
		refuseUnknownEvents(Peer.prototype, EVENTS$2);
	}
};
var NEXT = "$/enumerator/next";
var ABORT = "$/enumerator/abort";
var NO_LONGER_READ = "the stream is no longer read";
var openings = /* @__PURE__ */ new WeakSet();
function opensStream({ settings: { signal } }) {
	return signal !== void 0 && openings.has(signal);
}
var iterated = /* @__PURE__ */ new WeakSet();
function iterateOnce(stream) {
	if (iterated.has(stream)) throw new Error("a stream can be read once");
	iterated.add(stream);
}
function requestMore(connection, token, sink) {
	return connection.outgoing.requestDirectly(NEXT, { token }, { timeoutMs: Infinity }, sink);
}
var StreamReader = class {
	#connection;
	#source;
	/** Cancels the call that opens the stream, while that waits. */
	#opening;
	/** The token, while the other side holds the stream for this reader. */
	#token;
	/** The requested replies, in order. Only a reciproc peer is asked for more than one: other implementations may refuse that. */
	#ahead = [];
	#end;
	#ignoreSignal;
	/** Ends the wait for a reply. */
	#wake;
	#reading = this.#read();
	constructor(connection, source) {
		this.#connection = connection;
		this.#source = source;
		this.#token = source.token;
	}
	[Symbol.asyncIterator]() {
		iterateOnce(this);
		return this;
	}
	next() {
		return this.#reading.next();
	}
	/** Ends the stream at once, also while a `next()` waits. */
	async return(value) {
		this.#stop({});
		return {
			done: true,
			value
		};
	}
	/** Ends the reading, once. The next `next()` throws the error of `how`, if it has one. */
	#stop(how) {
		if (this.#end !== void 0) return;
		this.#end = how;
		this.#source.onEnd?.();
		this.#ignoreSignal?.();
		this.#abort();
		this.#wake?.();
		this.#opening?.abort("error" in how ? how.error : /* @__PURE__ */ new Error(NO_LONGER_READ));
	}
	/** Stops the stream on the other side. */
	#abort() {
		const token = this.#token;
		if (token !== void 0) this.#connection.flow.send(encodeNotification$1(ABORT, { token }));
	}
	async *#read() {
		const { method, signal } = this.#source;
		try {
			if (signal?.aborted) this.#stop({ error: signal.reason });
			if (this.#end === void 0) this.#ahead.push(this.#begin());
			while (this.#end === void 0) {
				const reply = await this.#nextReply();
				if (reply === void 0 || this.#end !== void 0) break;
				for (const value of reply.values) {
					this.#connection.config.checks?.checkReceived("stream", method, value);
					yield value;
					if (this.#end !== void 0) break;
				}
				if (reply.finished) this.#stop({});
			}
		} catch (error) {
			this.#stop({ error });
		}
		const end = this.#end;
		if ("error" in end) throw shownAt(end.error, method, this.#read);
	}
	/** Opens the stream, and returns its first values. */
	async #begin() {
		const { signal, open: open2, token, method } = this.#source;
		this.#ignoreSignal = signal && onAbort(signal, () => this.#stop({ error: signal.reason }));
		this.#opening = new AbortController();
		openings.add(this.#opening.signal);
		const stream = await open2(this.#opening.signal);
		this.#opening = void 0;
		if (token === void 0) {
			this.#token = tokenOf(stream);
			if (this.#end !== void 0) this.#abort();
		}
		return {
			values: valuesOf(stream, this.#connection, method),
			finished: this.#token === void 0
		};
	}
	/** Waits for the next reply, and requests those that follow. Returns `undefined` if the reading has ended meanwhile. */
	async #nextReply() {
		const ahead = this.#ahead;
		const reply = await new Promise((resolve, reject) => {
			this.#wake = resolve;
			ahead.shift().then(resolve, reject);
		});
		if (reply === void 0 || this.#end !== void 0) return void 0;
		const most = this.#connection.transport.isReciproc === true ? 2 : 1;
		while (this.#token !== void 0 && ahead.length < most) ahead.push(observed(this.#more()));
		return reply;
	}
	async #more() {
		const { requestMore: request = requestMore, method } = this.#source;
		try {
			const reply = readMore(await request(this.#connection, this.#token));
			if (reply.finished) this.#token = void 0;
			return reply;
		} catch (error) {
			if (freesToken(error)) this.#token = void 0;
			throw ofOpeningCall(error, method);
		}
	}
};
function ofOpeningCall(error, method) {
	if (error instanceof ConnectionLostError) return new ConnectionLostError(method, "unknown", error.cause);
	if (error instanceof RpcError) error.method = method;
	return error;
}
function freesToken(error) {
	return !(error instanceof ProtocolError$1 || error instanceof RpcError && error.code === -32009);
}
function tokenOf(stream) {
	const token = member(stream, "token") ?? void 0;
	if (isLongToken(token)) throw new ProtocolError$1(`a stream must have a token of at most ${LONGEST_TOKEN$1} characters`, stream);
	return token;
}
function valuesOf(stream, { transport }, method) {
	const { values = [] } = Object(stream);
	if (isObject(stream) && ("token" in stream || "values" in stream || !transport.isReciproc && Object.keys(stream).length === 0) && Array.isArray(values)) return values;
	throw new ProtocolError$1(`expected a stream of "${method}", got ${show(stream).slice(0, 100)}`, stream);
}
function readMore(reply) {
	const { values, finished } = reply ?? {};
	if (!Array.isArray(values) || typeof finished !== "boolean" || values.length === 0 && !finished) throw new ProtocolError$1("more of a stream must have `values` or `finished: true`", reply);
	return {
		values,
		finished
	};
}
var MOST_AHEAD = 65536;
var MOST_BYTES_AHEAD = 4 * MOST_AHEAD;
var MOST_VALUES = 1e3;
var ENVELOPE_BYTES = 128;
var QUIET_TICKS = 8;
var STREAM_COST = 2048;
var ROOM_CHECK_MS = 10;
var MOST_CHECK_MS = 160;
var NOTHING = {
	values: [],
	isLast: false
};
var noResponse;
var givenUp = () => new RpcError(NoSuchStream, "The stream was given up");
var TOO_MANY_NEXT = {
	code: InvalidRequest,
	message: "Too many `next`"
};
function isOpen(state) {
	return state.name !== "finished" && state.name !== "failed";
}
var ServedStream = class {
	#connection;
	#streams;
	#source;
	/** The call whose result the stream is. */
	#whole;
	/** The frame that the call came in: a generator keeps the params. */
	#frame;
	#state;
	#iterator;
	/** The parts of a view that the source has yielded: that of a `Blob` may yield one of any length. */
	#parts;
	/** Queued values, as JSON. */
	#queued;
	/** The length of all queued values. */
	#length;
	/** How many requests for more values wait for their responses. */
	#asked;
	/** Settles when the last of these requests is answered. The next one is answered after that. */
	#answered;
	/** Ends the wait for a value. */
	#wake;
	/** Adds the stream to its table. For the arguments, see `serveStream`. */
	constructor(table, token, source, isWhole, call) {
		this.#state = { name: "unread" };
		this.#queued = [];
		this.#length = 0;
		this.#asked = 0;
		this.#answered = Promise.resolve();
		this.onSent = (isSent) => {
			if (!isSent) this.stop(/* @__PURE__ */ new Error("the response was not sent"));
		};
		const { transport } = table.connection;
		this.call = call;
		this.token = token;
		this.isAnnounced = !isWhole;
		this.#connection = table.connection;
		this.#streams = table.streams;
		this.#source = source;
		this.#whole = isWhole ? call : void 0;
		this.#frame = call && (call.frame ?? transport.currentFrame);
		this.#frame?.keep();
		table.streams.set(token, this);
		transport.keeps?.(STREAM_COST);
		if (isNodeStream(source)) source.on("error", (error) => this.#fail(error));
	}
	/** Changes the state. A wait for a value ends if none follows. */
	#become(state) {
		this.#state = state;
		if (!isOpen(state)) this.#wake?.();
	}
	/** Ends the stream with an error of its source, after the queued values. If no value follows them, reports the error. */
	#fail(error) {
		const state = this.#state;
		if (isOpen(state)) this.#become({
			name: "failed",
			error
		});
		else if (!isAbort(error, state.reason)) this.#connection.incoming.reportFailure(this.call?.id, this.call?.method ?? NEXT, error);
	}
	/** Drops the queued values, and closes the source. Unless `isAborted` by the reader, a pending request fails. */
	stop(reason, isAborted = false) {
		if (!this.#remove()) return;
		if (this.isAnnounced) this.#whole?.abort({ reason });
		const state = this.#state;
		this.#become(isAborted ? { name: "finished" } : {
			name: "failed",
			error: givenUp(),
			reason
		});
		this.#count(-this.#length, -this.#queued.length);
		this.#queued = [];
		this.#parts = void 0;
		if (isOpen(state)) this.#close();
		else if (state.name === "failed") this.#fail(state.error);
	}
	/** Removes the stream from the table. Returns false if it was removed before. */
	#remove() {
		if (!this.#streams.delete(this.token)) return false;
		this.#connection.transport.keeps?.(-2048);
		this.#frame?.drop();
		return true;
	}
	/** Continues to read: the connection has a socket again. */
	resumed() {
		this.#wake?.();
		if (this.#state.name === "resting") this.#readAhead();
	}
	get #canRead() {
		const most = this.#parts === void 0 ? MOST_AHEAD : MOST_BYTES_AHEAD;
		return isOpen(this.#state) && this.#length < most && this.#queued.length < MOST_VALUES;
	}
	async #readAhead() {
		if (this.#state.name === "reading" || !isOpen(this.#state)) return;
		const { flow, config } = this.#connection;
		this.#become({ name: "reading" });
		try {
			while (this.#canRead && !flow.isDown) {
				const part = this.#parts?.next();
				const { done, value } = part?.done === false ? part : await (this.#iterator ??= iteratorOf(this.#source)).next();
				if (!isOpen(this.#state)) return;
				if (done === true) this.#become({ name: "finished" });
				else if (config.bytes && ArrayBuffer.isView(value)) this.#parts = config.bytes.parts(value, MOST_AHEAD);
				else this.#add(value);
			}
		} catch (error) {
			this.#iteratorFailed(error);
		}
		if (isOpen(this.#state)) this.#become({ name: "resting" });
	}
	#add(value) {
		const connection = this.#connection;
		try {
			connection.config.checks?.checkSent("stream", this.call?.method ?? NEXT, value);
			const text = stringify(value) ?? "null";
			if (typeof text !== "string") text.keep();
			if (exceeds(text, connection.incoming.maxReplyBytes - ENVELOPE_BYTES)) throw new RpcError(ResponseTooLarge, "Value of a stream is too large");
			this.#queued.push(text);
			this.#count(text.length, 1);
			this.#wake?.();
		} catch (error) {
			this.#fail(error);
			this.#close();
		}
	}
	/** Counts values that are queued, or no longer are. */
	#count(characters, values) {
		this.#length += characters;
		this.#connection.transport.keeps?.(characters + values * VALUE_COST);
	}
	/** Closes the source. Called last, because `return` may wait for a pending `next`. */
	async #close() {
		const source = this.#source;
		try {
			if (isNodeStream(source)) source.destroy();
			else await (this.#iterator ??= iteratorOf(source)).return?.();
		} catch (error) {
			this.#iteratorFailed(error);
		}
	}
	/** The iterator of a Node stream also fails if the stream is destroyed. The stream itself emits its errors. */
	#iteratorFailed(error) {
		if (isOpen(this.#state) || !isNodeStream(this.#source)) this.#fail(error);
	}
	/** Resolves when values are queued or the source has ended, at the latest after `waitMs`. */
	async ready(waitMs) {
		this.#readAhead();
		while (isOpen(this.#state) && this.#queued.length === 0 && await this.#arrival(waitMs));
		for (let seen = -1; seen !== this.#queued.length && this.#canRead;) {
			seen = this.#queued.length;
			for (let tick = 0; tick < QUIET_TICKS; tick++) await Promise.resolve();
		}
	}
	/** Waits for a value or the end. Resolves to false if neither comes within `waitMs`. */
	#arrival(waitMs) {
		return new Promise((resolve) => {
			const late = {
				deadline: 0,
				expire: () => resolve(false)
			};
			setDeadline(late, waitMs);
			this.#wake = () => {
				clearDeadline(late);
				resolve(true);
			};
		});
	}
	/** Takes the queued values that fit into one reply. After the last value, throws the error of a source that failed. */
	take() {
		const state = this.#state;
		const queued2 = this.#queued;
		if (queued2.length === 0 && state.name === "failed") {
			this.#become({
				name: "finished",
				reason: state.reason
			});
			this.#remove();
			throw state.error;
		}
		const most = this.#connection.incoming.maxReplyBytes / 3 - ENVELOPE_BYTES;
		let taken = 0;
		let characters = 0;
		while (taken < queued2.length && (taken === 0 || characters + taken + queued2[taken].length < most)) characters += queued2[taken++].length;
		this.#count(-characters, -taken);
		const values = queued2.splice(0, taken);
		const isLast = state.name === "finished" && queued2.length === 0;
		if (isLast) this.#remove();
		this.#readAhead();
		return {
			values,
			isLast
		};
	}
	/** Whether values wait until the connection has room for them. */
	get #isFull() {
		return this.#queued.length > 0 && !this.#connection.flow.hasRoom;
	}
	/** Returns the JSON of the stream as a whole result, with the queued values if the connection has room for them. */
	toJson() {
		const { call, token } = this;
		if (call?.abortCause !== void 0) throw call.abortCause.reason;
		this.isAnnounced = true;
		const { values, isLast } = this.#isFull ? NOTHING : this.take();
		if (values.length === 0 && !isLast) return `{"token":${token}}`;
		return joinTexts(isLast ? "{\"values\":[" : `{"token":${token},"values":[`, values, "]}");
	}
	/** Answers a request for more values when values are ready and the connection has room for them, or the stream is over. */
	answer(id, slot) {
		const { flow, incoming } = this.#connection;
		if (this.#asked === 2) return incoming.respond(id, encodeError$1(id, TOO_MANY_NEXT), slot);
		this.#asked++;
		this.#answered = this.#answered.then(async () => {
			try {
				await this.ready(Infinity);
				for (let ms = ROOM_CHECK_MS; this.#isFull; ms = Math.min(2 * ms, MOST_CHECK_MS)) await this.#arrival(flow.isDown ? Infinity : ms);
				this.#asked--;
				const { values, isLast } = this.take();
				const text = encodeRawResult(id, joinTexts("{\"values\":[", values, `],"finished":${isLast}}`));
				incoming.respond(id, text, slot, this.onSent);
			} catch (error) {
				incoming.respond(id, incoming.encodeFailure(id, this.call?.method ?? NEXT, error), slot);
			}
		});
	}
};
function serveStream(table, source, call, isWhole) {
	const refusal = whyRefused(table, call);
	const stream = new ServedStream(table, refusal === void 0 ? newToken(table) : 0, source, isWhole, call);
	if (refusal !== void 0) {
		stream.stop(refusal.reason);
		throw refusal.reason;
	}
	call?.onReply(stream.onSent);
	return stream;
}
function newToken(table) {
	const { transport, flow } = table.connection;
	if (table.lastToken === 0 && (transport.isReciproc === true || flow.openingQueue !== void 0)) table.lastToken = Math.floor(Math.random() * 2 ** 32);
	return ++table.lastToken;
}
function whyRefused({ connection, streams: streams2 }, call) {
	if (call?.abortCause !== void 0) return call.abortCause;
	if (call !== void 0 && call.id === void 0) return noResponse ??= { reason: /* @__PURE__ */ new Error("a notification has no response") };
	const { maxStreams } = connection.config.limits;
	if (streams2.size < maxStreams) return void 0;
	if (call !== void 0) return { reason: new RpcError(Busy, "Too many streams are open") };
	return { reason: /* @__PURE__ */ new RangeError(`\`limits.maxStreams\`, ${maxStreams}, is reached`) };
}
function iteratorOf(source) {
	if ("getReader" in source) {
		const reader = source.getReader();
		return {
			next: () => reader.read(),
			return: () => reader.cancel()
		};
	}
	if (Symbol.asyncIterator in source) return source[Symbol.asyncIterator]();
	const iterator = source[Symbol.iterator]();
	return {
		async next() {
			const { done = false, value } = iterator.next();
			return {
				done,
				value: await value
			};
		},
		return: async () => iterator.return?.()
	};
}
function isNodeStream(source) {
	return [
		"pipe",
		"destroy",
		"on"
	].every((name) => typeof source[name] === "function");
}
var BatchCalls = class {
	constructor(calls) {
		this.calls = new Set(calls);
	}
	get sent() {
		return [...this.calls].every((call) => call.sent);
	}
	set sent(value) {
		for (const call of this.calls) call.sent = value;
	}
};
var Batches = class {
	#connection;
	/** The batches that wait for their reply. */
	#open;
	constructor(connection) {
		this.#connection = connection;
		this.#open = /* @__PURE__ */ new Set();
	}
	receiveUnknown(value, slot) {
		if (slot.isInBatch) return false;
		if (!Array.isArray(value)) return this.#receiveRefusal(value);
		if (value.length > 0) this.#receiveBatch(value, slot);
		return value.length > 0;
	}
	/**
	* Rejects the pending batch, if there is one only. An error with id null that is no member of an array means that the other side could not
	* read the batch. It cannot mean a single call, because every id of this side is valid.
	*/
	#receiveRefusal(value) {
		const [batch, ...others] = this.#open;
		if (batch === void 0 || others.length > 0 || classify(value) !== "response") return false;
		const { code, message, data } = value.error;
		this.#fail(batch, (method) => receivedError(method, code, message, data));
		return true;
	}
	#fail({ calls }, make) {
		for (const { id, method } of calls) this.#connection.outgoing.fail(id, make(method));
	}
	/**
	* Processes an array: a batch of the other side, or the reply to a batch of this side, whose responses settle calls. Takes as many ticks as
	* the budget of the connection needs. The reply is one array, in request order. It goes into `slot` when every request is answered.
	*/
	#receiveBatch(members, slot) {
		const connection = this.#connection;
		const { maxBatchEntries } = connection.config.limits;
		const areResponses = members.map((member2) => isResponse(connection, member2));
		const isTooLarge = areResponses.filter((is) => !is).length > maxBatchEntries;
		const reply = gatherReply(connection, slot);
		const answered = /* @__PURE__ */ new Set();
		const take = (i) => {
			if (areResponses[i]) {
				const handle = connection.outgoing.get(members[i].id)?.handle;
				if (handle instanceof BatchCalls) answered.add(handle);
			} else if (isTooLarge) return;
			const place = reply.reserve();
			if (!areResponses[i] || !isLoneId(members[i])) return connection.dispatch(members[i], place);
			connection.outgoing.settle("broken", members[i], place);
			place.leaveOut();
		};
		inTicks(connection, members.length, take, () => {
			if (!isTooLarge) reply.countDown();
			for (const batch of answered) this.#fail(batch, (method) => new ProtocolError$1(`the batch's reply has no response to "${method}"`, members));
			if (!isTooLarge) return;
			const error = {
				code: BatchTooLarge,
				message: "Batch is too large",
				data: { maxBatchEntries }
			};
			connection.incoming.putError(null, error, slot);
		});
	}
	/** Starts a batch that this side sends. */
	batch() {
		const connection = this.#connection;
		const { outgoing } = connection;
		const entries = [];
		let isSent = false;
		const checkUnsent = () => {
			if (isSent) throw new Error("this batch was sent already");
		};
		const sink = { send(text, call) {
			if (isSent) return connection.flow.sink.send(text, call);
			if (outgoing.ended !== void 0) return false;
			if (typeof text !== "string") text.keep();
			entries.push({
				text,
				call
			});
			return true;
		} };
		return {
			async request(method, params, options) {
				checkUnsent();
				return outgoing.request(method, params, options, sink);
			},
			notify(method, params) {
				checkUnsent();
				return outgoing.notify(method, params, sink);
			},
			send: () => {
				checkUnsent();
				isSent = true;
				const live2 = entries.filter(({ call }) => call === void 0 || outgoing.get(call.id) !== void 0);
				if (live2.length === 0) return;
				const calls = this.#opened(live2.flatMap(({ call }) => call ?? []));
				const text = joinTexts("[", live2.map((entry) => entry.text), "]");
				if (!connection.flow.sink.send(text, calls)) outgoing.refused(text, calls);
			}
		};
	}
	/** Returns the handle of a batch with these calls, which waits until all of them are settled. */
	#opened(calls) {
		const batch = new BatchCalls(calls);
		if (calls.length > 0) this.#open.add(batch);
		for (const call of calls) {
			call.handle = batch;
			call.whenSettled(() => {
				batch.calls.delete(call);
				if (batch.calls.size === 0) this.#open.delete(batch);
			});
		}
		return batch;
	}
};
function isResponse(connection, member2) {
	const kind = classify(member2);
	return kind === "response" || kind === "broken" && connection.outgoing.isMeantAsResponse(member2);
}
function inTicks(connection, count2, take, end, from = 0) {
	const { budget } = connection.transport;
	for (let i = from; i < count2; i++) {
		if (connection.ended !== void 0) return;
		if (i > from && budget?.isSpent()) return budget.defer(() => inTicks(connection, count2, take, end, i));
		take(i);
	}
	end();
}
function gatherReply(connection, slot) {
	const responses = [];
	const listeners = [];
	const { incoming, transport } = connection;
	let bytesLeft = incoming.maxReplyBytes - 1;
	let waiting = 1;
	const reserveBytes = (text) => {
		const bytes = utf8Bytes(text) + 1;
		if (bytes > bytesLeft) return false;
		bytesLeft -= bytes;
		return true;
	};
	const countDown = () => {
		if (--waiting > 0) return;
		const reply = responses.filter((response) => response !== void 0);
		for (const { length } of reply) transport.keeps?.(-length - VALUE_COST);
		if (reply.length === 0) return slot.leaveOut();
		const isTaken = slot.put(joinTexts("[", reply, "]"));
		if (!isTaken) {
			incoming.namelessErrors++;
			slot.put(encodeTooLarge(null, incoming.maxReplyBytes));
		}
		for (const listener of listeners) listener(isTaken && connection.ended === void 0);
	};
	const reserve = () => {
		const place = responses.push(void 0) - 1;
		waiting++;
		return {
			isInBatch: true,
			reserveBytes,
			put(text, onSent) {
				if (typeof text !== "string") text.keep();
				responses[place] = text;
				transport.keeps?.(text.length + VALUE_COST);
				if (onSent !== void 0) listeners.push(onSent);
				countDown();
				return true;
			},
			leaveOut: countDown
		};
	};
	return {
		reserve,
		countDown
	};
}
var batches = {
	name: "batches",
	methods: () => [],
	create: (connection) => new Batches(connection)
};
var Compat = class {
	#connection;
	constructor(connection) {
		this.#connection = connection;
	}
	receiveUnknown(value, slot) {
		const connection = this.#connection;
		const { compat: compat2, onForeignMessage } = connection.config;
		if (onForeignMessage !== void 0 && !slot.isInBatch && isForeign(value)) {
			if (connection.incoming.takeRate?.() === false) connection.counts.refusedRate++;
			else runReporting(() => onForeignMessage(value, connection.peer), (error) => connection.report(error));
			slot.leaveOut();
			return true;
		}
		const version = compat2 === void 0 ? void 0 : fromVersion1(value);
		if (version !== void 0) connection.dispatch(value, inVersion1(slot, version));
		return version !== void 0;
	}
};
function isForeign(value) {
	if (!isObject(value) || value.jsonrpc !== void 0 || value.method !== void 0) return false;
	return value.id === void 0 || value.result === void 0 && value.error === void 0;
}
function fromVersion1(value) {
	if (!isObject(value)) return void 0;
	const { jsonrpc, id, method, result, error } = value;
	if (jsonrpc !== void 0 && jsonrpc !== "1.0") return void 0;
	value.jsonrpc = "2.0";
	if (method !== void 0) {
		if (id === null) delete value.id;
	} else if (error !== void 0 && error !== null) {
		if (result === null) delete value.result;
		if (!isErrorObject(error)) value.error = errorObject(error);
	}
	return jsonrpc === void 0 ? "assumed" : "named";
}
function errorObject(data) {
	return {
		code: InternalError,
		message: typeof data === "string" ? data : "Error",
		data
	};
}
function inVersion1(slot, version) {
	return {
		isInBatch: slot.isInBatch === true,
		reserveBytes: (text) => slot.reserveBytes(toVersion1(text, version)),
		put: (text, onSent) => slot.put(toVersion1(text, version), onSent),
		leaveOut: () => slot.leaveOut()
	};
}
function toVersion1(text, version) {
	const reply = plainText(text);
	const [, member2] = /,"(result|error)":/.exec(reply);
	const other = member2 === "result" ? ",\"error\":null" : version === "named" ? ",\"result\":null" : "";
	return `{${reply.slice(VERSION_2.length, -1)}${other}}`;
}
var VERSION_2 = "{\"jsonrpc\":\"2.0\",";
var compat = {
	name: "compat",
	methods: () => [],
	create: (connection) => new Compat(connection)
};
var LONGEST_KEY = 256;
var isKey$1 = (value) => typeof value === "string" && value.length <= LONGEST_KEY;
var LIVE_OPTIONS = {
	volatile: (value, name) => optional(oneOf(true, false))(value, name),
	latest: (value, name) => optional(must(`a string of at most ${LONGEST_KEY} characters`, isKey$1))(value, name)
};
function checkLive(options, table) {
	const checked = checkOptions("options", options, table);
	if (checked.volatile !== true || checked.latest === void 0) return checked;
	throw expected("latest", "absent beside `volatile`", checked.latest);
}
var MOST_LATEST = 1024;
var CHECK_MS = 20;
var NotificationHandle = class {
	constructor(method, key, isBroadcast) {
		this.sent = false;
		this.droppable = method;
		this.latest = key === void 0 ? void 0 : `${key.length}:${key}${method}`;
		this.isBroadcast = isBroadcast;
	}
};
function isOfMany(handle) {
	return handle instanceof NotificationHandle && handle.isBroadcast;
}
var LiveQueue = class extends SendQueue {
	/** The newest message of each method and key, in the order of the messages. Made with the first. */
	#latest;
	#broadcastLength = 0;
	#dropped;
	#counter;
	/**
	* `dropped`: called with the method of the oldest message with a key, if that is dropped because there were too many keys. `counter`:
	* counts what is queued.
	*/
	constructor(dropped, counter) {
		super();
		this.#dropped = dropped;
		this.#counter = counter;
	}
	get ordinaryLength() {
		return this.length - this.#broadcastLength;
	}
	add(text, handle) {
		super.add(text, handle);
		if (!(handle instanceof NotificationHandle) || handle.latest === void 0) return;
		this.#latest = (this.#latest ?? /* @__PURE__ */ new Map()).set(handle.latest, handle);
		if (this.#latest.size <= MOST_LATEST) return;
		const [oldest] = this.#latest.values();
		this.remove(oldest);
		this.#dropped(oldest.droppable);
	}
	replace(handle) {
		const older = handle instanceof NotificationHandle ? this.#latest?.get(handle.latest) : void 0;
		if (older !== void 0) this.remove(older);
	}
	remove(handle) {
		const isQueued = super.remove(handle);
		if (isQueued && handle instanceof NotificationHandle) this.#latest?.delete(handle.latest);
		return isQueued;
	}
	grow(by, handle) {
		if (isOfMany(handle)) this.#broadcastLength += by;
		super.grow(by, handle);
		this.#counter?.keeps?.(by, isOfMany(handle));
	}
};
function countDropped({ counts, transport, hooks, peer }, method) {
	counts.dropped++;
	transport.reportMissed?.(1);
	hooks.missed?.(peer, method);
}
var LiveFlow = class extends Flow {
	constructor() {
		super(...arguments);
		this.deadline = 0;
		this.#broadcastBytes = 0;
	}
	/** How many unsent bytes of the transport are broadcasts, at most. Only the others can end the connection. */
	#broadcastBytes;
	get ordinaryUnsentBytes() {
		const { unsentBytes = 0 } = this.connection.transport;
		const ordinary = unsentBytes - this.#broadcastBytes;
		return this.isBehind ? ordinary + this.queue.ordinaryLength : ordinary;
	}
	get #isLow() {
		return this.unsentBytes < this.connection.config.marks.low;
	}
	/** Whether a message is sent at once, with few unsent bytes before it. */
	get isReady() {
		return this.openingQueue === void 0 && this.state === "open" && this.#isLow;
	}
	makeQueue(counter) {
		return new LiveQueue((method) => this.#dropped(method), counter);
	}
	decide(text, handle) {
		const { unsentBytes } = this;
		this.check();
		if (this.hasEnded) return false;
		const latest = handle instanceof NotificationHandle ? handle.latest : void 0;
		this.queue?.replace(handle);
		const isTooLate = isOfMany(handle) && unsentBytes > this.connection.config.marks.queue;
		if (this.state !== "open" && this.state !== "slow") return isTooLate && latest === void 0 ? false : this.enqueue(text, handle);
		if (latest !== void 0 && !this.#isLow && this.#fits(text)) {
			this.state = "slow";
			setDeadline(this, CHECK_MS);
			(this.queue ??= this.makeQueue(this.connection.transport)).add(text, handle);
			return true;
		}
		if (isTooLate) return false;
		if (this.state === "slow") this.drain();
		if (this.hasEnded) return false;
		return this.state === "open" ? void 0 : this.enqueue(text, handle);
	}
	enqueue(text, handle) {
		if (!isOfMany(handle)) return super.enqueue(text, handle);
		const { transport } = this.connection;
		const mayQueue = !this.isDown || transport.acceptsBroadcast?.(QUEUED_COST + text.length) !== false;
		if (this.isTooLong(text) || !mayQueue || !this.#fits(text)) return false;
		(this.queue ??= this.makeQueue(transport)).add(text, handle);
		return true;
	}
	/** Whether a message may be queued that may be dropped: it takes no room from ordinary messages. */
	#fits({ length }) {
		return (this.queue?.length ?? 0) + length <= this.connection.config.marks.room;
	}
	sent(text, handle, message) {
		if (isOfMany(handle)) this.#countBroadcasts(this.#broadcastBytes + (message?.unsentBytes ?? unsentBytesOf(text)));
	}
	#countBroadcasts(bytes) {
		this.#broadcastBytes = bytes;
		this.isMixed = bytes > 0;
	}
	check() {
		if (!this.isDown) this.#countBroadcasts(Math.min(this.#broadcastBytes, this.connection.transport.unsentBytes ?? 0));
		super.check();
	}
	/** Checks a slow reader. */
	expire() {
		if (this.state !== "slow") return;
		if (this.#isLow) this.drain();
		else setDeadline(this, CHECK_MS);
	}
	suspended() {
		if (this.hasEnded) return;
		super.suspended();
		const { queue } = this;
		const broadcastLength = queue === void 0 ? 0 : queue.length - queue.ordinaryLength;
		if (broadcastLength > 0 && this.connection.transport.acceptsBroadcast?.(broadcastLength) === false) this.#dropBroadcasts(queue);
	}
	#dropBroadcasts(queue) {
		const dropped = [];
		for (const [handle] of queue) {
			if (!isOfMany(handle)) continue;
			queue.remove(handle);
			dropped.push(handle.droppable);
		}
		for (const method of dropped) this.#dropped(method);
	}
	#dropped(method) {
		this.connection.counts.notificationsSent--;
		countDropped(this.connection, method);
	}
	refused(text, handle) {
		if (handle.droppable === void 0) super.refused(text, handle);
		else this.#dropped(handle.droppable);
	}
	/** Sends the messages for a slow reader, or ends the connection. */
	flush() {
		if (this.state !== "slow") return;
		this.state = "draining";
		this.check();
		if (!this.hasEnded) this.drain();
	}
	stop() {
		clearDeadline(this);
		return super.stop();
	}
	endSession(reason) {
		clearDeadline(this);
		super.endSession(reason);
	}
};
function isReady({ flow }) {
	return flow.isReady;
}
var live = {
	name: "live",
	methods: () => [],
	create: (connection) => ({ check(method, options) {
		const { volatile, latest } = checkLive(options, LIVE_OPTIONS);
		return {
			handle: latest === void 0 ? void 0 : new NotificationHandle(method, latest, false),
			maySend: () => volatile !== true || isReady(connection)
		};
	} }),
	Flow: LiveFlow
};
var Progress = class {
	#connection;
	#dialect;
	/** The calls that asked for reports, by token. */
	#asked;
	/** The token before the first, and the last token, of this side. */
	#start;
	#lastToken;
	constructor(connection) {
		this.#connection = connection;
		this.#asked = /* @__PURE__ */ new Map();
		this.#start = this.#lastToken = Math.floor(Math.random() * 2 ** 30);
		this.#dialect = progressOf(connection.config.dialect);
	}
	receive(message) {
		return !("id" in message) && message.method === this.#dialect.method && this.#receiveReport(message.params);
	}
	ask(call, params) {
		const asked = this.#asked;
		const given = this.#dialect.tokenIn(params);
		if (given === void 0 && !this.#connection.speaksDialect) return params;
		const holder = asked.get(given);
		if (holder === call) return params;
		if (holder !== void 0) throw new Error(`a call with the progress token ${JSON.stringify(given)} waits already`);
		const token = given ?? this.#nextToken();
		const asking = given === void 0 ? this.#dialect.withToken(byName(params), token) : params;
		asked.set(token, call);
		call.whenSettled(() => asked.delete(token));
		return asking;
	}
	#nextToken() {
		do
			this.#lastToken++;
		while (this.#asked.has(this.#lastToken));
		return this.#lastToken;
	}
	/** Calls that were queued before it was known what the other side understands ask now. */
	rewriteQueued(text, handle) {
		const { outgoing } = this.#connection;
		if (callsOf(handle).every(({ settings }) => settings.onProgress === void 0)) return text;
		const parsed = JSON.parse(typeof text === "string" ? text : text.json);
		const texts = [parsed].flat().flatMap((message) => {
			const call = outgoing.get(message.id);
			if (call?.settings.onProgress === void 0) return JSON.stringify(message);
			try {
				return encodeRequest$1(call.id, call.method, this.ask(call, message.params));
			} catch (error) {
				outgoing.fail(call.id, error);
				return [];
			}
		});
		if (texts.length === 0) return void 0;
		const rewritten = Array.isArray(parsed) ? joinTexts("[", texts, "]") : texts[0];
		return typeof text === "string" ? rewritten : text.rewritten(rewritten);
	}
	reporterOf(call) {
		const dialect = this.#dialect;
		const token = dialect.tokenIn(call.params);
		if (token === void 0 || isLongToken(token) || call.id === void 0) return () => {};
		const connection = this.#connection;
		return (value) => {
			if (!call.isAwaited) return;
			connection.config.checks?.checkSent("progress", call.method, value);
			checkForms(value);
			const text = encodeNotification$1(dialect.method, dialect.params(token, value));
			if (!connection.flow.send(text)) connection.outgoing.refused(text);
		};
	}
	/** Takes a report. Returns false if its token is none of this side. */
	#receiveReport(params) {
		const report = this.#dialect.read(params);
		if (report === void 0) return false;
		const { token, value } = report;
		const call = this.#asked.get(token);
		if (call === void 0) {
			const isOwn = typeof token === "number" && token > this.#start && token <= this.#lastToken;
			if (isOwn) this.#connection.counts.unmatched++;
			return isOwn;
		}
		const { resetTimeoutOnProgress, timeoutMs, onProgress } = call.settings;
		if (resetTimeoutOnProgress) setDeadline(call, timeoutMs);
		runReporting(() => {
			this.#connection.config.checks?.checkReceived("progress", call.method, value);
			return onProgress(value);
		}, (error) => this.#connection.report(error, {
			method: call.method,
			id: call.id
		}));
		return true;
	}
};
function progressOf({ progress: own = lsp.progress }) {
	return own;
}
function byName(params) {
	const { toJSON: toJSON2 } = Object(params);
	const given = typeof toJSON2 === "function" ? toJSON2.call(params) : params;
	if (params === void 0 || isObject(given)) return given;
	stringify(params);
	throw expected("params", "an object or absent with `onProgress`", params);
}
var progress = {
	name: "progress",
	methods: (dialect) => [progressOf(dialect).method],
	create: (connection) => new Progress(connection)
};
var Renewal = class {
	#connection;
	#calls = /* @__PURE__ */ new Set();
	/** The newest exchange. `isSent`: its `auth` is sent, and the reply has not come. Its calls may have timed out. */
	#exchange = { isSent: false };
	constructor(connection) {
		this.#connection = connection;
	}
	/** Sends a fresh `auth` as a call, which has no message of its own. It settles as any other call. */
	async reauthenticate(options) {
		const send = (_text, handle) => {
			this.#add(handle);
			return true;
		};
		await this.#connection.outgoing.requestDirectly("$/reauthenticate", void 0, options, { send });
	}
	#add(call) {
		const calls = this.#calls;
		const { isSent } = this.#exchange;
		call.sent = isSent;
		call.whenSettled(() => calls.delete(call));
		calls.add(call);
		if (this.#connection.transport.delegate?.freshAuth === void 0) this.#reject();
		else if (calls.size === 1 && !isSent) this.#renew();
	}
	resumed() {
		this.#renew();
	}
	/** Sends a fresh `auth` if a call waits for it. While there is no socket, the call waits: the next server may ask for `auth`. */
	async #renew() {
		const { transport, flow } = this.#connection;
		const calls = this.#calls;
		const exchange = { isSent: false };
		this.#exchange = exchange;
		if (calls.size === 0 || flow.isDown) return;
		try {
			const auth = await transport.delegate.freshAuth();
			if (this.#exchange !== exchange || calls.size === 0) return;
			if (auth === void 0) return this.#reject();
			exchange.isSent = transport.sendControl(`{"auth":${auth}}`);
			if (exchange.isSent) for (const call of calls) call.sent = true;
		} catch (error) {
			if (this.#exchange === exchange) this.#reject(error);
		}
	}
	#reject(reason = mistake("`reauthenticate` requires `auth` of client and server")) {
		for (const { id } of this.#calls) this.#connection.outgoing.fail(id, reason);
	}
	receiveFrame(frame) {
		if ("auth" in frame && this.#calls.size === 0) this.reauthenticate().catch((error) => {
			if (!(error instanceof ConnectionLostError)) this.#connection.report(error, void 0, "auth");
		});
		if (!("authenticated" in frame)) return;
		this.#exchange.isSent = false;
		const { outgoing, incoming } = this.#connection;
		for (const { id } of this.#calls) outgoing.settle("response", {
			id,
			result: null
		}, incoming);
	}
};
var renewal = {
	name: "renewal",
	methods: () => [],
	create: (connection) => new Renewal(connection)
};
var schemas = {
	name: "schemas",
	methods: () => [],
	create: () => ({}),
	fitSchemas
};
var FIRST_VALUE_WAIT_MS = 100;
var NO_SUCH_STREAM = {
	code: NoSuchStream,
	message: "No such stream"
};
var Streams = class {
	/** Whether a stream was offered: then every message is encoded here. */
	#isOffering = false;
	/** The call whose message is being encoded. */
	#encoding;
	constructor(connection) {
		this.connection = connection;
		this.streams = /* @__PURE__ */ new Map();
		this.lastToken = 0;
	}
	get size() {
		return this.streams.size;
	}
	receive(message, slot) {
		const id = "id" in message ? message.id : void 0;
		if (message.method !== (id === void 0 ? ABORT : NEXT)) return false;
		const named = this.streams.get(member(message.params, "token", 0));
		const stream = named?.isAnnounced ? named : void 0;
		if (id === void 0) stream?.stop(new DOMException(NO_LONGER_READ, "AbortError"), true);
		else if (stream !== void 0) stream.answer(id, slot);
		else this.connection.incoming.respond(id, encodeError$1(id, NO_SUCH_STREAM), slot);
		return true;
	}
	/**
	* Stops the streams in the responses to the calls with that id, which may have crossed their cancel. Finding these among 256, the
	* default of `maxStreams`, takes about 2 µs.
	*/
	cancelled(id, cause) {
		for (const stream of this.streams.values()) {
			const { call } = stream;
			if (call?.id === id && !isExempt(this.connection.config.dialect, call.method)) stream.stop(cause.reason);
		}
	}
	/** A side that serves a stream must learn that it is no longer read. */
	mustCancel(call) {
		return opensStream(call);
	}
	stream(method, params, options) {
		const { outgoing } = this.connection;
		const given = options?.signal;
		const signal = isSignal(given) ? given : void 0;
		return this.read({
			method,
			signal,
			open: (opening, sink) => {
				const once = given === signal ? {
					...options,
					signal: opening,
					retry: false
				} : options;
				return outgoing.request(method, params, once, sink);
			}
		});
	}
	iterate(stream) {
		if (typeof stream !== "object" || stream === null) throw expected("stream", "a stream out of a message", stream);
		iterateOnce(stream);
		return this.read({
			method: NEXT,
			open: async () => stream,
			token: tokenOf(stream)
		});
	}
	/** Reads a stream on the other side. */
	read(source) {
		return new StreamReader(this.connection, source);
	}
	offer(source) {
		if (!isIterable(source)) throw expected("source", "an iterable or web stream", source);
		this.#isOffering = true;
		let isSent = false;
		const toJSON2 = () => {
			const call = this.#encoding;
			if (call === void 0) throw mistake("a stream can be sent only in a request or a result");
			if (isSent) throw mistake("a stream can be sent once");
			isSent = true;
			const isParam = call instanceof OutgoingCall;
			const stream = serveStream(this, source, isParam ? void 0 : call, false);
			if (isParam) call.whenSettled(() => stream.stop(/* @__PURE__ */ new Error("the call has ended")));
			return { token: stream.token };
		};
		return { toJSON: toJSON2 };
	}
	encode(call, content) {
		if (!this.#isOffering) return void 0;
		const outer = this.#encoding;
		this.#encoding = call;
		try {
			if (call instanceof OutgoingCall) return encodeRequest$1(call.id, call.method, content);
			return encodeResult$1(call.id ?? null, content);
		} finally {
			this.#encoding = outer;
		}
	}
	async serve(source, call) {
		const stream = serveStream(this, source, call, true);
		await stream.ready(FIRST_VALUE_WAIT_MS);
		return () => stream.toJson();
	}
	resumed() {
		for (const stream of this.streams.values()) stream.resumed();
	}
	end(reason) {
		for (const stream of this.streams.values()) stream.stop(reason);
	}
};
function isIterable(value) {
	return typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value || "getReader" in value);
}
var streams = {
	name: "streams",
	methods: () => [NEXT, ABORT],
	create: (connection) => new Streams(connection)
};
var DEFAULT_DELAYS = {
	minDelayMs: 250,
	maxDelayMs: 5e3
};
globalThis.setImmediate;
function checkReconnect(reconnect, name) {
	const isSwitch = reconnect === void 0 || typeof reconnect === "boolean";
	if (!isSwitch && typeof reconnect !== "object") throw expected(name, "a boolean or an object", reconnect);
	const { initial, minDelayMs, maxDelayMs = Math.max(DEFAULT_DELAYS.maxDelayMs, 2 * minDelayMs) } = checkOptions(name, isSwitch ? {} : reconnect, RECONNECT_OPTIONS);
	if (maxDelayMs < 2 * minDelayMs) throw expected(`${name}.maxDelayMs`, `at least twice \`${name}.minDelayMs\`, ${minDelayMs}`, maxDelayMs);
	return {
		reconnects: isSwitch ? reconnect : true,
		retriesFirst: initial,
		minDelayMs,
		maxDelayMs
	};
}
var RECONNECT_OPTIONS = {
	initial: optional(oneOf(true, false), false),
	minDelayMs: optional(finite, DEFAULT_DELAYS.minDelayMs),
	maxDelayMs: optional(finite)
};
var CONNECT_OPTIONS = {
	...PEER_OPTIONS,
	openTimeoutMs: optional(positive, 1e4),
	signal: optional(anySignal),
	link: optional(oneOf("packed", "plain"), "packed"),
	reconnect: checkReconnect,
	onOpen: optional(anyFunction),
	auth: any,
	heartbeat: (value) => checkHeartbeat(value)
};
var NONE = [];
var PlainLink = class {
	#socket;
	#coalescer = new Coalescer(this, Infinity);
	#receiver;
	/** The messages of this tick. */
	#messages = NONE;
	#length = 0;
	/** `isReciproc`: the other side is a reciproc peer. */
	constructor(socket, isReciproc = false) {
		this.#socket = socket;
		this.isReciproc = isReciproc;
	}
	start(receiver) {
		this.#receiver = receiver;
		this.#socket.start(this);
	}
	get unsentBytes() {
		return this.#socket.unsentBytes;
	}
	get traffic() {
		return this.#socket.traffic;
	}
	get budget() {
		return this.#socket.budget;
	}
	send(text) {
		const socket = this.#socket;
		if (socket.coalesces !== true) return socket.send(text);
		const isDue = this.#coalescer.added(this.#length + text.length);
		if (isDue && this.#messages === NONE || !socket.open) return socket.send(text);
		if (this.#messages === NONE) this.#messages = [text];
		else this.#messages.push(text);
		this.#length += text.length;
		if (isDue) this.flush();
		return true;
	}
	sendEncoded(message) {
		this.flush();
		const frame = message.plain;
		return this.#socket.sendEncoded?.(frame) ?? this.#socket.send(frame.content);
	}
	flush() {
		if (this.#messages === NONE) return;
		const messages = this.#messages;
		this.#messages = NONE;
		this.#length = 0;
		this.#socket.send(...messages);
	}
	afterRead(then) {
		this.flush();
		return this.#socket.afterRead?.(then) ?? false;
	}
	close(code, reason) {
		this.flush();
		this.#socket.close(code, reason);
	}
	receiveFrame(text) {
		this.#receiver.dispatch(parse(text));
	}
	closed(info) {
		this.#receiver.closed(info);
	}
};
function plain(socket, isReciproc) {
	return new PlainLink(socket, isReciproc);
}
// ../../dist/chunks/engine.js
var EngineError = class extends Error {
	constructor(message, outcome, options) {
		super(message, options);
		this.name = "EngineError";
		this.code = "ENGINE";
		this.outcome = outcome;
	}
};
function newEpoch() {
	return nanoid(10);
}
function publicationName(topic, key) {
	return `${topic.length}:${topic}${key}`;
}
function engineAnswer(error) {
	try {
		if (error instanceof EngineError) return {
			code: TryAgainLater$1,
			message: "Try again later"
		};
	} catch {}
}
function checkEngine(value, name) {
	if (value === void 0 || typeof value?.createConnection === "function") return value;
	throw expected(name, "an engine, such as `memory()`", value);
}
// ../../dist/chunks/server.js
var LOOPBACK_NAME = /^(127\.[\d.]+|\[::1\]|\[::ffff:7f[\da-f]{2}:[\da-f]+\]|(.+\.)?localhost\.?)$/;
var LOOPBACK_ADDRESS = /^(::1$|(::ffff:)?127\.)/;
function refuseHost(host, address, { hosts }) {
	const isLocal = LOOPBACK_ADDRESS.test(address);
	if (!isLocal && hosts === void 0) return void 0;
	const name = parseHost(host)?.hostname;
	if (name !== void 0 && isLocal && LOOPBACK_NAME.test(name)) return void 0;
	if (name !== void 0 && hosts?.some((allowed) => allowed === name || allowed === host.toLowerCase())) return void 0;
	return `Host "${host}" is not allowed; if it is yours, list it in \`hosts\``;
}
function refuseOrigin(origin, host, isTls2, { origins }) {
	if (origin === void 0 || origins === "*" || origins?.includes(origin)) return void 0;
	if (sameHost(origin, host, isTls2)) return void 0;
	return `Origin "${origin}" is not allowed; if it is yours, list it in \`origins\``;
}
function sameHost(origin, host, isTls2) {
	const from = URL.canParse(origin) ? new URL(origin) : void 0;
	const to = from && parseHost(host, from.protocol);
	if (from === void 0 || to === void 0 || from.hostname === "") return false;
	if (LOOPBACK_NAME.test(from.hostname) && LOOPBACK_NAME.test(to.hostname)) return true;
	return from.host === to.host && !(isTls2 && from.protocol === "http:");
}
function isHost(name) {
	if (typeof name !== "string") return false;
	const url = parseHost(name);
	return url !== void 0 && !name.includes("*") && (url.host === name.toLowerCase() || `${url.hostname}:80` === name.toLowerCase());
}
function isOrigin(text) {
	if (typeof text !== "string" || !/^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(text)) return text === "null";
	if (!URL.canParse(text)) return false;
	const { origin } = new URL(text);
	return origin === text || origin === "null";
}
function parseHost(host, protocol = "http:") {
	const url = `${protocol}//${host}`;
	return /^[^\s/?#@\\]+$/.test(host) && URL.canParse(url) ? new URL(url) : void 0;
}
var CUT_MS = 1e3;
function cutLater(connection) {
	const timer = setTimeout(() => connection.destroy(), CUT_MS);
	timer.unref?.();
	connection.once("close", () => clearTimeout(timer));
}
var IGNORE = {
	receiveFrame() {},
	closed() {}
};
function closeIgnored(socket, code, reason) {
	socket.start(IGNORE);
	socket.close(code, cutReason(reason));
}
function closeWithBye(socket, { status, reason }) {
	const code = fromHttpStatus(status);
	socket.send(byeFrame({
		code,
		reason
	}));
	socket.close(code, cutReason(reason));
}
var STATUS_TEXT = {
	400: "Bad Request",
	401: "Unauthorized",
	403: "Forbidden",
	404: "Not Found",
	405: "Method Not Allowed",
	426: "Upgrade Required",
	503: "Service Unavailable"
};
var EXTRA_HEADERS = {
	405: "Allow: GET",
	426: "Sec-WebSocket-Version: 13",
	503: "Retry-After: 5"
};
function answerRefusal(socket, { status, reason }) {
	const body = `${reason}
`;
	const headers = [
		`HTTP/1.1 ${status} ${STATUS_TEXT[status]}`,
		"Connection: close",
		"Content-Type: text/plain; charset=utf-8",
		`Content-Length: ${Buffer.byteLength(body)}`
	];
	const extra = EXTRA_HEADERS[status];
	if (extra !== void 0) headers.push(extra);
	socket.on("error", () => socket.destroy());
	socket.once("finish", () => socket.destroy());
	socket.end(`${headers.join("\r\n")}\r
\r
${body}`);
}
var OFFER = /* @__PURE__ */ new Set(["upgrade", "http2-settings"]);
function withoutUpgrade({ method, url, httpVersion, rawHeaders }) {
	const lines = [`${method} ${url} HTTP/${httpVersion}`];
	for (let i = 0; i < rawHeaders.length; i += 2) {
		const name = rawHeaders[i].toLowerCase();
		const value = rawHeaders[i + 1];
		if (!OFFER.has(name)) lines.push(`${rawHeaders[i]}: ${name === "connection" ? withoutOffer(value) : value}`);
	}
	return Buffer.from(`${lines.join("\r\n")}\r
\r
`, "latin1");
}
function withoutOffer(connection) {
	return connection.split(",").filter((option) => !OFFER.has(option.trim().toLowerCase())).join(",");
}
var PART_BYTES = 200;
var HEAD_BYTES = 65536;
function waitForResponse(response, socket, head, maxMessageBytes, use) {
	const parts = [head];
	let bytes2 = head.length;
	const take = (part) => {
		parts.push(part);
		bytes2 += part.length + PART_BYTES;
		if (bytes2 > maxMessageBytes + HEAD_BYTES) socket.destroy();
	};
	const cut = () => void socket.destroy();
	socket.on("data", take).on("end", cut).on("error", cut);
	response.once("finish", () => {
		socket.off("data", take).off("end", cut).off("error", cut).pause();
		use(Buffer.concat(parts));
	});
}
function answerUpgradeRequired(response) {
	response.writeHead(426, {
		"Content-Type": "text/plain; charset=utf-8",
		Connection: "Upgrade",
		Upgrade: "websocket"
	});
	response.end("This server speaks JSON-RPC 2.0 over WebSocket.\n");
}
var TOKEN = /^[ \t]*([\w!#$%&'*+.^`|~-]+)[ \t]*$/;
function checkHandshake({ method, headers }) {
	const { upgrade = "", "sec-websocket-key": key = "", "sec-websocket-version": version = "" } = headers;
	if (method !== "GET") return {
		status: 405,
		reason: `a WebSocket is opened by GET, not by ${method}`
	};
	if (upgrade.toLowerCase() !== "websocket") return {
		status: 400,
		reason: `\`Upgrade\` is "${upgrade}", not "websocket"`
	};
	if (!/^[+/0-9A-Za-z]{22}==$/.test(key)) return {
		status: 400,
		reason: "`Sec-WebSocket-Key` is not 16 bytes in base64"
	};
	if (version !== "13") return {
		status: 426,
		reason: `\`Sec-WebSocket-Version\` is "${version}", not "13"`
	};
	return checkProtocols(headers["sec-websocket-protocol"]);
}
function checkProtocols(header) {
	if (header === void 0) return void 0;
	const offers = header.split(",").map((offer) => TOKEN.exec(offer)?.[1]);
	if (!offers.includes(void 0) && new Set(offers).size === offers.length) return void 0;
	return {
		status: 400,
		reason: `\`Sec-WebSocket-Protocol\` is "${header}", not different tokens`
	};
}
function checkHost({ httpVersion, rawHeaders }) {
	let hosts = 0;
	for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i].toLowerCase() === "host") hosts++;
	if (hosts === 1 || hosts === 0 && httpVersion !== "1.1") return void 0;
	return {
		status: 400,
		reason: `the request has ${hosts} \`Host\` headers, not one`
	};
}
function checkOrigin(request, rules) {
	const refusal = checkHost(request);
	if (refusal !== void 0) return refusal;
	const { host = "", origin } = request.headers;
	const { localAddress = "" } = request.socket;
	const reason = refuseHost(host, localAddress, rules) ?? refuseOrigin(origin, host, isTls(request), rules);
	return reason === void 0 ? void 0 : {
		status: 403,
		reason
	};
}
function isTls({ socket }) {
	return socket.encrypted === true;
}
var DISCONNECTED = {
	status: 503,
	reason: "the principal was disconnected while this client was admitted"
};
var Admission = class {
	#before;
	/** `before`: the last principal that was disconnected before `since`. */
	constructor(auth, principal, expiresAt, since, before) {
		this.auth = auth;
		this.principal = principal;
		this.expiresAt = expiresAt;
		this.since = since;
		this.#before = before;
	}
	/**
	* Ends the admission, once: its client is about to get a peer, or resumes a session. Returns a refusal if the principal was
	* disconnected since `authenticate` was called. From now on, a disconnect closes the peer itself.
	*/
	end() {
		let one = this.#before?.next;
		this.#before = void 0;
		while (one !== void 0 && (one.principal !== this.principal || one.until < this.since)) one = one.next;
		return one && DISCONNECTED;
	}
};
var EXPIRED = "the credentials have expired";
function runAuthenticate(authenticate, request, auth, timeoutMs) {
	const settled = callAuthenticate(authenticate, request, auth);
	if (timeoutMs === Infinity) return {
		verdict: settled,
		settled,
		abandon: () => {}
	};
	const reason = `authentication took longer than ${timeoutMs} ms`;
	let timer;
	const abandon = () => clearTimeout(timer);
	return {
		verdict: new Promise((resolve) => {
			const refuse = () => resolve({ refusal: {
				status: 503,
				reason
			} });
			timer = setTimeout(refuse, Math.min(timeoutMs, LONGEST_DELAY_MS));
			timer.unref?.();
			settled.finally(abandon).then(resolve);
		}),
		settled,
		abandon
	};
}
async function callAuthenticate(authenticate, request, auth) {
	const refusal = {
		status: 401,
		reason: "authentication failed"
	};
	try {
		const admission = await authenticate(request, auth);
		if (admission === null) return { refusal };
		return admission.expiresAt > performance.now() ? { admission } : { refusal: {
			status: 401,
			reason: EXPIRED
		} };
	} catch (error) {
		if (error?.status !== 503) return {
			refusal,
			error
		};
		return {
			refusal: {
				status: 503,
				reason: "authentication is not available"
			},
			error
		};
	}
}
var Gate = class {
	/** Sockets that wait for `authenticate`. */
	#deciding = /* @__PURE__ */ new Set();
	/** Open sockets that passed the checks before `authenticate`, and what uncounts each. */
	#sockets = /* @__PURE__ */ new Map();
	#connections = 0;
	/** One function for all connections, because each keeps a reference until it closes. So is the listener of "close". */
	#leave = () => void this.#connections--;
	#onClose;
	#isShut = false;
	constructor(settings, delegate) {
		this.settings = settings;
		this.delegate = delegate;
		const left = (socket) => this.#left(socket);
		this.#onClose = function() {
			left(this);
		};
	}
	/** Accepts or refuses an upgrade. Answers and closes a refused socket. Never throws. */
	handleUpgrade(request, socket, head) {
		if (socket.destroyed) return;
		const refusal = checkHandshake(request) ?? this.checkCapacity(request, true, true) ?? this.checkOrigin(request) ?? this.#checkOffer(request);
		if (refusal !== void 0) return this.#refuse(refusal, request, socket, head);
		const { verdict, leave } = this.enter(request, this.delegate.authenticatesLater?.(request));
		this.#sockets.set(socket, leave);
		socket.on("close", this.#onClose);
		if (verdict === void 0) this.#admit(void 0, request, socket, head);
		else this.#awaitVerdict(verdict, request, socket, head);
	}
	/** Uncounts a connection. */
	#left(socket) {
		const leave = this.#sockets.get(socket);
		this.#sockets.delete(socket);
		this.#deciding.delete(socket);
		leave?.();
	}
	/**
	* Returns a refusal if the gate is shut, serves another path, or has too many connections. `checksPath` is false if the
	* application routes requests itself.
	*/
	checkCapacity(request, checksPath, isUpgrade) {
		const { path, limits } = this.settings;
		if (this.#isShut) return {
			status: 503,
			reason: "the server is closing"
		};
		if (checksPath && !this.servesPath(request)) return {
			status: 404,
			reason: `nothing is served at this path; \`path\` is "${path}"`
		};
		const { maxConnections } = limits;
		if (this.#connections < maxConnections) return void 0;
		const reserved = isUpgrade ? this.delegate.reserved?.(request) ?? 0 : 0;
		return this.#connections < maxConnections + reserved ? void 0 : fullRefusal(maxConnections);
	}
	/** Returns a refusal if the `Host` or the `Origin` of a request is not allowed. */
	checkOrigin(request) {
		return checkOrigin(request, this.settings);
	}
	/** Refuses a client that offers no supported subprotocol. Such a client would close a connection without one. */
	#checkOffer(request) {
		if (this.delegate.wantsAgreement !== true || request.headers["sec-websocket-protocol"] === void 0) return void 0;
		if (this.delegate.chooseProtocol(offeredBy(request)) !== void 0) return void 0;
		return {
			status: 400,
			reason: `none of the subprotocols "${request.headers["sec-websocket-protocol"]}" is supported; offer none`
		};
	}
	/** Counts a connection, and runs `authenticate` unless that is called later. */
	enter(request, isLater = false) {
		const { authenticate, limits } = this.settings;
		this.#connections++;
		if (authenticate === void 0 || isLater) return {
			verdict: void 0,
			leave: this.#leave
		};
		let parts = 2;
		const leave = () => void (--parts === 0 && this.#connections--);
		const { handshakeTimeoutMs } = limits;
		const { verdict, settled, abandon } = runAuthenticate(authenticate, request, void 0, handshakeTimeoutMs);
		settled.then((outcome) => {
			leave();
			if ("error" in outcome) this.delegate.failed(outcome.error);
		});
		const disconnect = () => {
			abandon();
			leave();
		};
		return {
			verdict,
			leave: disconnect
		};
	}
	/**
	* Runs `authenticate`, which must be set, for a client that has sent `auth` over its open `socket`. The client is counted as a
	* connection. If `authenticate` runs on after the socket has closed, it counts as a connection until it ends.
	*/
	authenticate(request, auth, socket) {
		const { authenticate, limits } = this.settings;
		const { verdict, settled, abandon } = runAuthenticate(authenticate, request, auth, limits.handshakeTimeoutMs);
		let leave = () => void socket.off("close", stay);
		const stay = () => {
			abandon();
			this.#connections++;
			leave = this.#leave;
		};
		socket.once("close", stay);
		settled.then((outcome) => {
			leave();
			if ("error" in outcome) this.delegate.failed(outcome.error);
		});
		return verdict;
	}
	/** Refuses all further requests with 503, and cuts the sockets that wait for `authenticate`. */
	shut() {
		this.#isShut = true;
		for (const socket of this.#deciding) socket.destroy();
	}
	/** Shuts the gate, and waits until the delegate has closed every connection. Never rejects. */
	async close() {
		this.shut();
		await Promise.all([...this.#sockets.keys()].map((socket) => new Promise((resolve) => socket.once("close", resolve))));
	}
	#awaitVerdict(verdict, request, socket, head) {
		this.#deciding.add(socket);
		socket.on("error", ignore);
		verdict.then((decision) => {
			this.#deciding.delete(socket);
			socket.off("error", ignore);
			if ("refusal" in decision) this.#refuse(decision.refusal, request, socket, head);
			else this.#admit(decision.admission, request, socket, head);
		});
	}
	#admit(admission, request, connection, head) {
		if (!connection.readable || !connection.writable) return void connection.destroy();
		const refusal = this.delegate.claimSlotUnlessLater?.(request, admission);
		if (refusal !== void 0) return this.#refuse(refusal, request, connection, head);
		this.#upgrade(connection, () => this.open(request, connection, head, (socket, protocol) => this.delegate.admit(socket, protocol, admission, request, connection)));
	}
	#upgrade(connection, open) {
		try {
			open();
		} catch (error) {
			this.#left(connection);
			this.delegate.failed(error);
		}
	}
	/** Returns true if the gate serves the path of a request. */
	servesPath({ url = "/" }) {
		const { path } = this.settings;
		return path === void 0 || url === path || url.startsWith(`${path}?`);
	}
	#refuse(refusal, request, socket, head) {
		this.delegate.refused(refusal, request);
		if (BYE_STATUS.has(refusal.status) && this.delegate.chooseProtocol(offeredBy(request)) === "reciproc.v1") {
			this.#upgrade(socket, () => this.refuseWithBye(request, socket, head, refusal));
			cutLater(socket);
		} else this.answer(socket, refusal);
	}
};
var BYE_STATUS = /* @__PURE__ */ new Set([
	401,
	403,
	503
]);
function fullRefusal(maxConnections) {
	return {
		status: 503,
		reason: `\`limits.maxConnections\`, ${maxConnections}, is reached`
	};
}
function offeredBy({ headers }) {
	return new Set((headers["sec-websocket-protocol"] ?? "").split(",").map((offered) => offered.trim()));
}
function ignore() {}
var DEFAULTS = {
	maxConnections: 1e4,
	handshakeTimeoutMs: 1e4,
	maxSuspendedPerPrincipal: 16,
	maxSuspendedBytes: 64 * 2 ** 20
};
function serverLimits(given = {}) {
	checkKnown("limits", given, {
		...DEFAULTS,
		...PEER_LIMITS
	});
	const { maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes, ...peers } = given;
	return {
		own: mergeLimits(DEFAULTS, {
			maxConnections,
			handshakeTimeoutMs,
			maxSuspendedPerPrincipal,
			maxSuspendedBytes
		}),
		peers: mergeLimits(PEER_LIMITS, peers)
	};
}
var MAX_MEMBERS = 1e4;
var MAX_AS_BYTES = 4096;
var PUBLISH_TIMEOUT_MS = 5e3;
var whole = (from, to) => must(`a whole number from ${from} to ${to}`, (value) => Number.isSafeInteger(value) && value >= from && value <= to);
var KEY_RULE = "a well-formed string of 1 to 256 characters";
var isKey = (value) => typeof value === "string" && value !== "" && value.length <= 256 && isWellFormed(value);
var RESERVED = "\0";
var isTopic = (value) => typeof value === "string" && value !== "" && !value.startsWith(RESERVED) && !exceeds(value, 512) && isWellFormed(value);
var LOG_RULE = {
	length: optional(whole(1, 1e4), 1e3),
	bytes: optional(whole(1, 64 * 2 ** 20), 2 ** 20),
	ttlMs: optional(whole(1e3, 6048e5), 36e5)
};
var checkLogRule = (value, name) => checkOptions(name, value, LOG_RULE);
var RULES = {
	log: optional(checkLogRule),
	members: optional(must("true or a string", (value) => value === true || typeof value === "string"))
};
var JOIN_OPTIONS = {
	since: any,
	as: any,
	load: optional(anyFunction)
};
var PUBLISH_OPTIONS = {
	key: optional(must(KEY_RULE, isKey)),
	timeoutMs: optional(positive, PUBLISH_TIMEOUT_MS)
};
var READ_OPTIONS = {
	since: any,
	limit: optional(whole(1, 1e3), 100)
};
var MEMBERS_OPTIONS = { limit: optional(whole(1, MAX_MEMBERS), MAX_MEMBERS) };
function checkRules(rules) {
	const { log: logRule, members: memberRule } = checkOptions("rules", rules ?? {}, RULES);
	return {
		logRule,
		memberRule
	};
}
var topicName = must(`a well-formed string of 1 to 512 bytes of UTF-8 that does not begin with U+0000`, isTopic);
function encodeAs(as) {
	checkForms(as);
	const json = messageJson(as);
	if (json === void 0) throw expected("as", "a value with a JSON form", as);
	if (exceeds(json, MAX_AS_BYTES)) throw expected("as", `at most ${MAX_AS_BYTES} bytes of JSON`, json.length);
	return json;
}
var MAX_PRINCIPAL_LENGTH = 8192;
var isPrincipal = (value) => typeof value === "string" && value.length <= MAX_PRINCIPAL_LENGTH && isWellFormed(value);
var principalName = must(`a well-formed string of at most ${MAX_PRINCIPAL_LENGTH} characters`, isPrincipal);
var Exclusion = class {
	#membersOf;
	constructor({ peers, topics }, membersOf) {
		this.peers = peers;
		this.topics = topics;
		this.#membersOf = membersOf;
	}
	has(peer) {
		return this.peers.has(peer) || this.topics.some((topic) => this.#membersOf(topic).has(peer));
	}
};
var MAX_NAMED = 256;
var MAX_ID_LENGTH = 128;
function wrongExcept(value) {
	return expected("except", `a peer of this server or of one with its engine, the id of one, a topic, or a list or a Set of at most ${MAX_NAMED}`, value);
}
function checkExcept(value) {
	if (value === void 0) return void 0;
	const entries = value instanceof Set ? [...value] : Array.isArray(value) ? value : [value];
	const peers = /* @__PURE__ */ new Set();
	const topics = /* @__PURE__ */ new Set();
	for (const entry of entries) {
		const named = entry instanceof AddressedPeer ? entry.id : entry;
		const names = member(named, "topics");
		if (named instanceof Peer$1) peers.add(named);
		else if (typeof named === "string" && named !== "" && named.length <= MAX_ID_LENGTH) peers.add(named);
		else if (!Array.isArray(names)) throw wrongExcept(named);
		else for (const name of names) topics.add(topicName(name, "except"));
	}
	if (peers.size + topics.size > MAX_NAMED) throw wrongExcept(`${peers.size + topics.size} peers and topics`);
	return {
		peers,
		topics: [...topics]
	};
}
function refuseOptions(options) {
	if (options !== void 0) throw expected("options", "absent, because this `notify` takes none", options);
}
var AddressedPeer = class {
	/** Throws a `TypeError` for what is no id. */
	constructor(calls, id) {
		if (typeof id !== "string") throw expected("id", "a string", id);
		const request = (method, params, options) => calls.request(id, method, params, options).catch((error) => failed(error, method));
		this.id = id;
		this.remote = remoteOf(request);
		this.request = request;
		this.notify = (method, params, options) => {
			refuseOptions(options);
			calls.notify(id, method, params);
		};
		this.close = async (code = 1e3, reason = "") => {
			await calls.close(id, code, checkClose(code, reason));
		};
	}
	/** Returns `id`, and throws in a message. */
	toJSON(key) {
		return shownAs(this.id, "peer", "write `peer.id`", key);
	}
};
function principalOf(calls, principals, name) {
	principalName(name, "name");
	const named = {
		toJSON(key) {
			return shownAs(name, "principal", "write its name", key);
		},
		notify(method, params, options) {
			refuseOptions(options);
			encodeNotification$1(method, params);
			principals.notifyAll(name, method, params);
		},
		async request(method, params, options) {
			encodeNotification$1(method, params);
			const { peers, isComplete } = await named.peers();
			return {
				outcomes: (await Promise.allSettled(peers.map((peer) => peer.request(method, params, options)))).map((outcome, i) => ({
					peer: peers[i],
					...outcome
				})),
				isComplete
			};
		},
		async peers() {
			const { ids, isComplete } = await principals.find(name);
			return {
				peers: Array.from(ids, (id) => new AddressedPeer(calls, id)),
				isComplete
			};
		},
		async disconnect(code = 1e3, reason = "") {
			return principals.disconnect(name, code, checkClose(code, reason));
		}
	};
	return named;
}
var allFeatures = [
	streams,
	progress,
	batches,
	live,
	renewal,
	schemas,
	compat,
	bytes
];
var ServerStreams = class extends Streams {
	read(source) {
		const { connection } = this;
		let kept = [];
		const keep2 = async (to, call) => {
			let frame;
			const send = (text, handle) => {
				handle.whenSettled(() => frame = connection.transport.currentFrame);
				return to().send(text, handle);
			};
			const reply = await call({ send });
			if (frame !== void 0 && kept !== void 0) {
				frame.keep();
				kept.push(frame);
			}
			return reply;
		};
		return super.read({
			...source,
			open: (signal) => keep2(() => connection.flow.sink, (sink) => source.open(signal, sink)),
			requestMore: (_connection, token) => {
				for (const frame of kept?.splice(0, kept.length - 2 + 1) ?? []) frame.drop();
				return keep2(() => connection.flow, (sink) => requestMore(connection, token, sink));
			},
			onEnd() {
				for (const frame of kept ?? []) frame.drop();
				kept = void 0;
			}
		});
	}
};
var serverFeatures = allFeatures.map((feature) => feature === streams ? {
	...streams,
	create: (connection) => new ServerStreams(connection)
} : feature);
var PostStreams = class extends Streams {
	offer() {
		const cause = this.connection.outgoing.whyNoCalls;
		throw new Error("the caller cannot read a stream in a response to HTTP POST", { cause });
	}
	/** Sends all values, or more than the longest reply takes: that reply is refused, and the stream is stopped then. */
	async serve(source, call) {
		const stream = serveStream(this, source, call, true);
		const { maxReplyBytes } = this.connection.incoming;
		const all = [];
		for (let length = 0, isLast = false; !isLast && length <= maxReplyBytes;) {
			await stream.ready(Infinity);
			if (call.abortCause !== void 0) throw call.abortCause.reason;
			const portion = stream.take();
			for (const value of portion.values) {
				const text = plainText(value);
				all.push(text);
				length += text.length;
			}
			isLast = portion.isLast;
		}
		stream.isAnnounced = true;
		return () => `{"values":[${all.join(",")}]}`;
	}
};
var postFeatures = [{
	...streams,
	create: (connection) => new PostStreams(connection)
}];
var SESSION_TTL_MS = 6e4;
var isCount = (value) => Number.isSafeInteger(value) && value > 0;
var isRoute = (value) => typeof value === "string" && /^[\w.-]{1,64}$/.test(value);
var SESSION_OPTIONS = {
	ttlMs: optional(must("a whole number from 1", isCount), SESSION_TTL_MS),
	route: optional(must("1 to 64 of A-Z, a-z, 0-9, `.`, `_` and `-`", isRoute))
};
var NODES_OPTIONS = { methods: (value = {}, name) => tableOf(value, name, anyFunction) };
var POST_OPTIONS = { notificationStatus: optional(oneOf(200, 204), 204) };
var SERVER_OPTIONS = {
	port: optional(must("a whole number from 0 to 65535", isPort)),
	host: optional(must("a non-empty string", isText)),
	server: optional(must("an http.Server", (value) => typeof value?.on === "function")),
	noServer: any,
	path: optional(must("a string that begins with \"/\" and has no \"?\"", isPath)),
	link: optional(oneOf("packed", "plain"), "packed"),
	authenticate: optional(anyFunction),
	origins: optional(checkOrigins),
	hosts: optional(checkHosts),
	heartbeat: (value) => checkHeartbeat(value),
	/** `undefined` without sessions. */
	session: (value, name) => {
		if (value === false) return void 0;
		if (value !== void 0 && !isObject(value)) throw expected(name, "`{ ttlMs }` or `false`", value);
		return checkOptions(name, value, SESSION_OPTIONS);
	},
	principal: optional(synchronousFunction),
	expiresInMs: optional(synchronousFunction),
	engine: checkEngine,
	topics: optional(anyFunction),
	changes: checkLogRule,
	nodes: (value) => checkOptions("nodes", value, NODES_OPTIONS),
	post: (value) => checkOptions("post", value, POST_OPTIONS),
	...PEER_OPTIONS,
	limits: (value) => serverLimits(value),
	/** The dialects that a client may choose by subprotocol. A client that chooses none gets the first. */
	dialect: (value) => value === void 0 ? [] : Array.isArray(value) ? value.map((one) => aDialect(one, "dialect")) : [aDialect(value, "dialect")]
};
function checkServerOptions(options) {
	const checked = checkOptions("options", options, SERVER_OPTIONS);
	const { port, host, server, noServer, path, principal, origins, hosts, limits, dialect } = checked;
	const given = [
		port !== void 0,
		server !== void 0,
		noServer === true
	].filter(Boolean).length;
	if (given !== 1) throw new TypeError(`Expected exactly one of \`port\`, \`server\` and \`noServer\`, got ${given}`);
	if (host !== void 0 && port === void 0) throw new TypeError("`host` requires `port`");
	const admitting = authenticator(checked);
	return {
		gate: {
			port,
			host: host ?? "127.0.0.1",
			server,
			path,
			authenticate: admitting.authenticate,
			origins,
			hosts,
			limits: limits.own
		},
		heartbeat: checked.heartbeat,
		/** How sessions are kept; `undefined` without sessions. */
		session: checked.session,
		/** The HTTP status of a POST that needs no reply. */
		notificationStatus: checked.post.notificationStatus,
		link: checked.link,
		/** The options of the peers, for a client that chooses no dialect. */
		peer: {
			...checked,
			limits: limits.peers,
			dialect: dialect[0],
			use: [...serverFeatures, ...checked.use ?? []]
		},
		dialects: dialect,
		fleet: {
			engine: checked.engine,
			topics: checked.topics,
			changes: checked.changes,
			nodes: checked.nodes.methods,
			principal,
			/** Refuses the clients of a principal that are being admitted. */
			disconnected: admitting.disconnected
		}
	};
}
function authenticator({ authenticate, principal, expiresInMs }) {
	for (const [name, value] of Object.entries({
		principal,
		expiresInMs
	})) if (authenticate === void 0 && value !== void 0) throw new TypeError(`\`${name}\` requires \`authenticate\``);
	let last = {
		principal: void 0,
		until: 0,
		next: void 0
	};
	return {
		disconnected: (name, until) => last = last.next = {
			principal: name,
			until,
			next: void 0
		},
		authenticate: authenticate && (async (request, credentials) => {
			const [since, before] = [performance.now(), last];
			const auth = await authenticate(request, credentials);
			if (!auth) return null;
			const name = principal && principalName(principal(auth), "principal()");
			const validMs = oneDuration(expiresInMs?.(auth), "expiresInMs()");
			return new Admission(auth, name, performance.now() + validMs, since, before);
		})
	};
}
function synchronousFunction(value, name) {
	const given = anyFunction(value, name);
	return (auth) => synchronous(given(auth), `\`${name}\``);
}
var oneDuration = optional(must("a number of milliseconds below 10^12, or undefined", (value) => typeof value === "number" && value < 0xe8d4a51000), Infinity);
function isPort(value) {
	return Number.isInteger(value) && value >= 0 && value <= 65535;
}
function isText(value) {
	return typeof value === "string" && value !== "";
}
var oneHost = must("a whole name such as \"example.org\", listed once for each name", isHost);
var oneOrigin = must("an origin as browsers send it, such as \"https://example.org\"", isOrigin);
function checkHosts(hosts, name) {
	if (!Array.isArray(hosts)) throw expected(name, "a list of names such as \"example.org\"", hosts);
	return hosts.map((host, i) => oneHost(host, `hosts[${i}]`).toLowerCase().replace(/:(80|443)$/, ""));
}
function checkOrigins(origins, name) {
	if (origins === "*") return origins;
	if (!Array.isArray(origins)) throw expected(name, "a list of origins such as \"https://example.org\", or \"*\"", origins);
	return origins.map((origin, i) => oneOrigin(origin, `origins[${i}]`));
}
function isPath(value) {
	return typeof value === "string" && value.startsWith("/") && !value.includes("?");
}
var NodeLink = class extends NegotiatedLink {
	constructor() {
		super(...arguments);
		this.budget = void 0;
	}
	/** The traffic of the earlier sockets. */
	#past;
	get traffic() {
		return addTraffic(this.#past, this.socket?.traffic);
	}
	afterRead(then) {
		this.flush();
		return this.flowing?.socket.afterRead?.(then) === true;
	}
	attachSocket(...attached) {
		const [{ budget }] = attached;
		if (this.budget !== void 0 && budget !== this.budget) budget?.adopt(this.budget);
		this.budget = budget;
		return super.attachSocket(...attached);
	}
	detach(end) {
		this.#past = this.traffic;
		super.detach(end);
	}
	/** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
	receivePack(messages, from = 0, receiver = this.receiver) {
		for (let i = from; i < messages.length; i++) {
			if (this.state.kind === "ended" || receiver.ended !== void 0) return;
			if (i > from && this.budget?.isSpent()) return this.budget.defer(() => this.receivePack(messages, i, receiver));
			receiver.dispatch(messages[i]);
		}
	}
};
var STEP_MS = 25;
var STEPS = 40;
var MIN_PER_STEP = 10;
var isRetry = (value) => value <= MAX_RETRY_MS;
var atMost = must(`a positive number of at most ${MAX_RETRY_MS}`, isRetry);
var DRAIN_OPTIONS = {
	timeoutMs: (value = 3e4, name) => Math.min(positive(value, name), LONGEST_DELAY_MS),
	retryMs: (value = 5e3, name) => Math.ceil(atMost(positive(value, name), name))
};
function checkDrain(options) {
	return checkOptions("options", options, DRAIN_OPTIONS);
}
async function drainPeers(peers, reason, { timeoutMs, retryMs }) {
	const deadline = performance.now() + timeoutMs;
	const perStep = Math.max(MIN_PER_STEP, Math.ceil(peers.size / STEPS));
	const working = /* @__PURE__ */ new Set();
	for (const peer of peers) if (afterWork(peer, () => working.delete(peer))) working.add(peer);
	while (peers.size > 0) {
		const isTimedOut = performance.now() >= deadline;
		let left = perStep;
		for (const peer of peers) {
			if (left === 0) break;
			if (!isTimedOut && (working.has(peer) || peer.stats().running > 0)) continue;
			left--;
			endPeer(peer, {
				code: GoingAway,
				reason,
				retryMs
			});
		}
		if (peers.size > 0) await new Promise((resolve) => setTimeout(resolve, STEP_MS));
	}
}
var MAX_AUTH_BYTES = 16384;
var ServerLink = class extends NodeLink {
	/** The length of the data that the receiver keeps for the other side, and of the queued broadcasts. */
	#kept = 0;
	#keptBroadcasts = 0;
	/** The length of the frame that was received last, and what counts its parts that are in use, once that is asked for. */
	#frameLength = 0;
	#lastFrame;
	constructor(limits, delegate) {
		super(limits, delegate !== void 0, delegate);
		this.onAuth = void 0;
	}
	receiveFrame(text) {
		const { state } = this;
		this.#frameLength = text.length;
		this.#lastFrame = void 0;
		const hello = state.kind === "greeting" ? helloOf(text) : void 0;
		if (hello === void 0) super.receiveFrame(text);
		else this.#receiveClientHello(state, hello);
	}
	receiveBinary(frame) {
		this.#frameLength = frame.length;
		this.#lastFrame = void 0;
		return super.receiveBinary(frame);
	}
	/** Takes the client's hello, which accepts or declines the offered session. */
	#receiveClientHello(at, hello) {
		const { session } = at;
		this.takesBytes = this.limits.bytes === true && says(hello, "bytes");
		if (session !== void 0 && says(hello, "session")) {
			const limits = limitsOf(member(hello, "limits"));
			if (limits === void 0) return this.fail("`limits` of a hello break their rules");
			session.theirs = limits;
			this.confirmed();
			return this.startMessages(at, "live", session);
		}
		if (session !== void 0) {
			this.sendData(at, void 0, Infinity);
			this.delegate?.resumptionEnded?.();
		}
		this.startMessages(at, "sessionless");
	}
	/**
	* Continues the session on another socket. The caller has checked `resume.received` by `session.canHaveReceived`. `makeToken` returns the next
	* token of the session.
	*/
	resume(socket, { received, limits, bytes: bytes2 }, makeToken) {
		const kind = this.flowing === void 0 ? "resuming" : "live";
		const left = {
			code: Superseded,
			reason: "a newer socket took over"
		};
		if (this.socket !== void 0) {
			this.socket.discard(left.code, left.reason);
			this.detach(left);
		}
		const at = this.attachSocket(socket, kind);
		const session = at.session;
		if (session.theirs === UNKNOWN_LIMITS) session.theirs = limits;
		this.takesBytes = this.limits.bytes === true && bytes2 === true;
		this.write([JSON.stringify({ resumed: {
			token: makeToken(),
			received: session.ack()
		} })]);
		session.rewind(received);
		this.startMessages(at, "live", session);
		socket.start(this);
	}
	/** Closes the present socket. A session continues over the next socket, and a connection without one ends. */
	closeSocket(code, reason) {
		this.socket.discard(code, reason);
		this.closed({
			code,
			reason
		});
	}
	/** As `send`. The message is written in the frame that is encoded for many peers, unless others are collected in this tick. */
	sendEncoded(message) {
		const text = sentForm(message.source, this.takesBytes, message);
		const { session } = this.state;
		if (session !== void 0 && exceeds(text, session.theirs.maxMessageBytes)) return false;
		let at = this.withRoom();
		if (at !== void 0 && at.length > 0) at = this.makeRoom(at, text);
		if (at === void 0 || at.length > 0) return this.send(text);
		const frame = typeof text === "string" ? message.pack : message.binary;
		const { socket } = at;
		const isSent = socket.sendEncoded?.(frame) ?? socket.send(frame.content);
		if (session === void 0) return isSent;
		session.push(frame.content);
		session.next++;
		return true;
	}
	keeps(by, isBroadcast = false) {
		if (isBroadcast) this.#keptBroadcasts += by;
		else this.#kept += by;
		if (this.state.kind === "suspended") this.delegate?.storedChanged?.();
	}
	acceptsBroadcast(length) {
		return this.delegate?.acceptsBroadcast?.(length) !== false;
	}
	/**
	* The frame that was received last, whose messages may be dispatched in later ticks too. While a part of it is in use, it counts
	* towards the memory of the session. `undefined` if the link keeps no session.
	*/
	get currentFrame() {
		return this.delegate && (this.#lastFrame ??= new Frame(this.#frameLength, this));
	}
	/** The memory of the session: the log, and what the receiver keeps, such as queued messages. */
	get storedLength() {
		return (this.state.session?.logLength ?? 0) + this.#kept;
	}
	/** The length of the queued broadcasts. */
	get storedBroadcastLength() {
		return this.#keptBroadcasts;
	}
	confirmed() {
		this.delegate?.confirmed?.();
	}
	control(frame) {
		if ("resume" in frame) return this.fail("`resume` on a socket that did not say it would");
		if (!("auth" in frame) || this.onAuth === void 0) return;
		if (this.#frameLength > MAX_AUTH_BYTES || exceeds(JSON.stringify(frame), MAX_AUTH_BYTES)) return this.end(MessageTooBig, TOO_LARGE);
		this.onAuth(frame.auth);
	}
};
function linkWithoutSession(socket, limits) {
	socket.send(sessionlessHello(limits.bytes));
	const link = new ServerLink(limits, void 0);
	link.attachSocket(socket, "greeting");
	return link;
}
var OTHER_PRINCIPAL = {
	status: 401,
	reason: "the `principal` of a connection cannot change"
};
var LAST_MS = 6e4;
var SHORT_MS = 1e3;
var Credential = class {
	#entrance;
	#link;
	#peer;
	#client;
	/** Whether the client was authenticated by its hello, and may send `auth` again. */
	#takesAuth;
	/** Whether `authenticate` has not decided on the newest `auth`. */
	#isDeciding = false;
	#timer;
	constructor(entrance, link, peer, client) {
		this.#entrance = entrance;
		this.#link = link;
		this.#peer = peer;
		this.#client = client;
		this.#takesAuth = entrance.authenticatesLater(client.request);
	}
	/** Lets the client send `auth`, and lets its credential expire. */
	start() {
		if (this.#takesAuth) this.#link.onAuth = (auth) => this.#receive(auth);
		this.#wait(this.#client.admission);
	}
	/** Whether the client has its peer on this socket. After the loss of the socket, the client is authenticated when it resumes. */
	get #isPresent() {
		const link = this.#link;
		return !(link instanceof ServerLink) || link.flowing?.socket === this.#client.socket;
	}
	/**
	* Waits until the admission expires. Asks the client for a fresh `auth` before: in the last minute, or in the last half of a shorter
	* time, and again while none has come.
	*/
	#wait(admission) {
		clearTimeout(this.#timer);
		const leftMs = admission.expiresAt - performance.now();
		if (leftMs === Infinity || !this.#isPresent) return;
		if (leftMs <= 0) return this.#expire();
		if (this.#timer === void 0) this.#client.connection.once("close", () => clearTimeout(this.#timer));
		const lastMs = leftMs > SHORT_MS ? Math.min(LAST_MS, leftMs / 2) * (.5 + Math.random() / 2) : 0;
		const check = () => {
			if (this.#takesAuth && !this.#isDeciding && this.#isPresent && performance.now() < admission.expiresAt) this.#link.sendControl(ASK_AUTH);
			this.#wait(admission);
		};
		this.#timer = setTimeout(check, Math.min(Math.ceil(leftMs - lastMs), LONGEST_DELAY_MS));
		this.#timer.unref?.();
	}
	#expire() {
		const link = this.#link;
		if (link instanceof ServerLink) link.closeSocket(Expired, EXPIRED);
		else endPeer(this.#peer, {
			code: Expired,
			reason: EXPIRED
		});
	}
	/** A client that sends another `auth` before the reply to the first breaks the protocol. */
	#receive(auth) {
		if (this.#isDeciding) return this.#link.fail("a second `auth` before the reply to the first");
		this.#isDeciding = true;
		this.#renew(auth);
	}
	/**
	* Authenticates the client again, whose principal must stay the same. An `auth` counts as a message: beyond `maxMessagesPerSecond` it
	* waits, because it has no response that would refuse only it.
	*/
	async #renew(auth) {
		const { request, connection, admission } = this.#client;
		const link = this.#link;
		const { config, incoming } = link.receiver;
		const { maxMessagesPerSecond } = config.limits;
		while (this.#isPresent && incoming.takeRate?.() === false) await delay(1e3 / maxMessagesPerSecond);
		if (!this.#isPresent) return;
		const verdict = await this.#entrance.gate.authenticate(request, auth, connection);
		this.#isDeciding = false;
		if (!this.#isPresent) return;
		if ("admission" in verdict && verdict.admission.principal === admission.principal) {
			verdict.admission.end();
			this.#wait(verdict.admission);
			this.#entrance.refresh(this.#peer, verdict.admission)();
			link.sendControl(AUTHENTICATED);
			return;
		}
		const refusal = "refusal" in verdict ? verdict.refusal : OTHER_PRINCIPAL;
		this.#entrance.refused(refusal, request);
		if (refusal.status === 503) return link.closeSocket(fromHttpStatus(503), refusal.reason);
		endPeer(this.#peer, {
			code: fromHttpStatus(refusal.status),
			reason: refusal.reason
		});
	}
};
function delay(ms) {
	return new Promise((resolve) => setDeadline({
		deadline: 0,
		expire: resolve
	}, ms));
}
var Entrance = class {
	#peers;
	#options;
	/** The configs of the dialects that a client can choose by a subprotocol. */
	#configBy;
	/** The subprotocols that can be chosen. */
	#protocols;
	constructor(peers, options, platform) {
		this.arrivals = /* @__PURE__ */ new Set();
		this.#configBy = /* @__PURE__ */ new Map();
		this.#peers = peers;
		this.#options = options;
		this.sessions = peers.sessions;
		this.maxFrameBytes = longestFrame(options.peer.limits.maxMessageBytes);
		this.timeoutMs = options.gate.limits.handshakeTimeoutMs;
		for (const dialect of options.dialects) {
			if (dialect.subprotocol === void 0) continue;
			const isFirst = dialect === options.peer.dialect;
			this.#configBy.set(dialect.subprotocol, isFirst ? peers.config : makeConfig({
				...options.peer,
				dialect
			}));
		}
		this.#protocols = [...options.link === "packed" ? [PROTOCOL] : [], ...this.#configBy.keys()];
		({gate: this.gate, posts: this.posts} = platform.connect(options, this));
	}
	/** Returns a text of the server: each connection keeps the name, and that of its client would take 32 bytes. */
	chooseProtocol(offered) {
		for (const name of offered) {
			const chosen = this.#protocols.find((one) => one === name);
			if (chosen !== void 0) return chosen;
		}
	}
	/** Returns true if a client offers to resume a session and gets `reciproc.v1`. */
	#offersResume(request) {
		return this.sessions !== void 0 && this.#offers(request, "reciproc.resume");
	}
	/** Returns true if a client gets `reciproc.v1`, and is authenticated by the `auth` in its hello. */
	authenticatesLater(request) {
		return this.#options.gate.authenticate !== void 0 && this.#offers(request, "reciproc.auth");
	}
	/** Returns true if a client makes an offer beside `reciproc.v1`, and gets `reciproc.v1`. */
	#offers(request, offer) {
		if (request.headers["sec-websocket-protocol"]?.includes(offer) !== true) return false;
		const offered = offeredBy(request);
		return offered.has(offer) && this.chooseProtocol(offered) === "reciproc.v1";
	}
	/** Returns the config of the first dialect that a client offers, even if `reciproc.v1` is chosen over that subprotocol. */
	#configFor({ headers }) {
		const [chosen = this.#peers.config] = (headers["sec-websocket-protocol"]?.split(",") ?? []).flatMap((name) => this.#configBy.get(name.trim()) ?? []);
		return chosen;
	}
	get #maxConnections() {
		return this.#options.gate.limits.maxConnections;
	}
	/** Peers take slots, suspended ones included, and sockets do not, so a client that resumes takes none. */
	get #isFull() {
		const { open, accepted } = this.#peers;
		return open.size - accepted.size + (this.posts?.running ?? 0) >= this.#maxConnections;
	}
	/** Returns a refusal if there is no slot for one more peer. The slot of a suspended session counts as free. */
	checkSlot() {
		return !this.#isFull || (this.sessions?.suspended ?? 0) > 0 ? void 0 : fullRefusal(this.#maxConnections);
	}
	/**
	* Claims a slot for one more peer, that of a suspended session if no other is free. Returns a refusal if there is no slot, or if the
	* principal of the peer was disconnected meanwhile.
	*/
	claimSlot(admission) {
		const refusal = admission?.end() ?? this.checkSlot();
		if (refusal === void 0 && this.#isFull) this.sessions.evict(`a new client needed the slot: ${fullRefusal(this.#maxConnections).reason}`);
		return refusal;
	}
	/** As `claimSlot`, unless the client sends its `auth` first, or offers to resume a session and may need no slot. */
	claimSlotUnlessLater(request, admission) {
		return admission === void 0 && this.authenticatesLater(request) || this.#offersResume(request) ? void 0 : this.claimSlot(admission);
	}
	/** The session of a reconnecting client may still have its old socket, which is closed when the client resumes. */
	reserved(request) {
		return this.#offersResume(request) ? this.sessions.live : 0;
	}
	admit(socket, protocol, admission, request, connection) {
		const { heartbeat } = this.#options;
		if (heartbeat !== void 0) socket.watch?.(heartbeat);
		const client = {
			socket,
			request,
			connection,
			admission
		};
		if (this.authenticatesLater(request)) this.#await(new AuthArrival(this, client));
		else this.open(client, protocol);
	}
	#await(arrival) {
		this.arrivals.add(arrival);
		setDeadline(arrival, this.timeoutMs);
		arrival.start();
	}
	/** Opens or resumes the connection of a client that may come in. */
	open(client, protocol = PROTOCOL) {
		const { sessions } = this;
		const { socket, admission } = client;
		const { config } = this.#peers;
		if (protocol !== "reciproc.v1") this.accept(client, plain(socket));
		else if (sessions === void 0) this.accept(client, linkWithoutSession(socket, endpointLimits(config.limits, config.bytes)));
		else if (this.#offersResume(client.request)) this.#await(new ResumeArrival(this, client, sessions));
		else this.accept(client, sessions.link(socket, admission?.principal));
	}
	/** Makes the peer of a new client. */
	accept(client, link) {
		const { request, admission } = client;
		const peer = this.#peers.accept(link, admission?.auth, this.#configFor(request), admission);
		this.#keepAuth(link, peer, client);
		this.#peers.emit("peer", [peer, request], peer);
	}
	/** Resumes a session, which has accepted `resume`. */
	resume(client, session, resume) {
		const { admission } = client;
		const { link } = session;
		const peer = link.receiver.peer;
		admission?.end();
		const emitRefresh = admission && this.refresh(peer, admission);
		link.onAuth = void 0;
		session.resume(client.socket, resume);
		this.#peers.tally.resumed();
		this.#keepAuth(link, peer, client);
		emitRefresh?.();
	}
	/** Gives a peer the new result of `authenticate`. Returns a function that emits `refresh`. */
	refresh(peer, { auth }) {
		const old = peer.auth;
		setAuth(peer, auth);
		return () => this.#peers.emit("refresh", [peer, old], peer);
	}
	#keepAuth(link, peer, client) {
		const { admission } = client;
		if (admission !== void 0) new Credential(this, link, peer, {
			...client,
			admission
		}).start();
	}
	/** Makes the peer of a request by POST. */
	acceptPost(transport, admission) {
		return this.#peers.acceptPost(transport, admission?.auth);
	}
	refused(refusal, request) {
		this.#peers.tally.refused(refusal);
		this.#peers.emit("refuse", [refusal, request]);
	}
	failed(error) {
		this.#peers.report(error);
	}
	/** Returns what reports that a client has discarded the session of `token`, because this server does not have it, if others may. */
	abandoned(token, principal) {
		return this.#peers.node?.sessionOver?.(token, this.sessions.options.hash(token), principal);
	}
	/** Refuses new clients, and closes those that have no peer yet. */
	shut(bye) {
		this.gate.shut();
		for (const arrival of this.arrivals) arrival.shut(bye);
	}
};
var Arrival = class {
	constructor(entrance, client) {
		this.deadline = 0;
		this.entrance = entrance;
		this.client = client;
	}
	closed() {
		this.settle();
	}
	/** Closes the socket, because the server closes. */
	shut(bye) {
		this.close(bye);
	}
	/** Closes the socket, and ignores further frames. */
	close({ code, reason }) {
		this.settle();
		closeIgnored(this.client.socket, code, reason);
		cutLater(this.client.connection);
	}
	settle() {
		clearDeadline(this);
		this.entrance.arrivals.delete(this);
	}
};
var AuthArrival = class extends Arrival {
	/** The TCP socket; `undefined` in memory, where no part of a frame is buffered. */
	#raw;
	#bytes = 0;
	#isAsking = false;
	#isOver = false;
	constructor(entrance, client) {
		super(entrance, client);
		this.#raw = isStream(client.connection) ? client.connection : void 0;
	}
	start() {
		const { socket } = this.client;
		socket.maxFrameBytes = MAX_AUTH_BYTES;
		this.#raw?.on("data", this.#count);
		socket.send(AUTH_HELLO);
		socket.start(this);
	}
	receiveFrame(text) {
		const hello = helloOf(text);
		if (hello === void 0 || this.#isAsking) return this.close({
			code: ProtocolError,
			reason: "not one hello with `auth`"
		});
		this.#isAsking = true;
		clearDeadline(this);
		const { request, connection } = this.client;
		this.entrance.gate.authenticate(request, member(hello, "auth"), connection).then((verdict) => this.#decide(verdict));
	}
	expire() {
		this.close({
			code: Superseded,
			reason: "no `auth` came in time"
		});
	}
	#decide(verdict) {
		if (this.#isOver) return;
		this.settle();
		if ("refusal" in verdict) return this.#refuse(verdict.refusal);
		const { admission } = verdict;
		const refusal = this.entrance.claimSlotUnlessLater(this.client.request, admission);
		if (refusal !== void 0) return this.#refuse(refusal);
		this.entrance.open({
			...this.client,
			admission
		});
	}
	#refuse(refusal) {
		const { socket, request, connection } = this.client;
		this.entrance.refused(refusal, request);
		socket.start(IGNORE);
		closeWithBye(socket, refusal);
		cutLater(connection);
	}
	#count = (part) => {
		const wasFlooded = this.#isFlooded;
		this.#bytes += part.length;
		if (!this.#isFlooded) return;
		if (!wasFlooded) this.close({
			code: MessageTooBig,
			reason: TOO_LARGE
		});
		this.#raw.pause();
	};
	get #isFlooded() {
		return this.#bytes > MAX_AUTH_BYTES + EXTRA_BYTES;
	}
	settle() {
		this.#isOver = true;
		super.settle();
		if (!this.#isFlooded) this.#raw?.off("data", this.#count);
	}
};
var ResumeArrival = class extends Arrival {
	#sessions;
	/** The token for a new session. A client that resumes one ignores it. */
	#token = "";
	#isRefused = false;
	/** Reports that the client has discarded a session that is not here. */
	#abandoned;
	/** What the server answers to a hello, because it closes. */
	#bye;
	constructor(entrance, client, sessions) {
		super(entrance, client);
		this.#sessions = sessions;
	}
	start() {
		const { socket } = this.client;
		this.#token = this.#sessions.offer(socket);
		socket.maxFrameBytes = this.entrance.maxFrameBytes;
		socket.start(this);
	}
	receiveFrame(text) {
		const { admission } = this.client;
		if (admission !== void 0 && admission.expiresAt <= performance.now()) return this.close({
			code: Expired,
			reason: EXPIRED
		});
		if (helloOf(text) !== void 0) this.#startNewSession(text);
		else if (this.#isRefused && readBye(text) !== void 0) return;
		else this.#resume(resumeOf(member(parse(text), "resume")));
	}
	expire() {
		this.close(this.#bye ?? {
			code: 4e3,
			reason: "neither `resume` nor a hello came in time"
		});
	}
	/** Closes the socket: at once, or when the hello of a refused client has come, which may be on its way. */
	shut(bye) {
		if (this.#abandoned === void 0) return this.close(bye);
		if (this.#bye !== void 0) return;
		this.#bye = bye;
		setDeadline(this, HELLO_WAIT_MS);
	}
	#startNewSession(hello) {
		const { socket, admission } = this.client;
		this.#abandoned?.();
		const bye = this.#bye ?? this.#byeFor(this.entrance.claimSlot(admission));
		if (bye !== void 0) {
			socket.send(byeFrame(bye));
			return this.close(bye);
		}
		this.settle();
		const link = this.#sessions.begin(socket, admission?.principal, this.#token);
		this.entrance.accept(this.client, link);
		if (link.socket === socket) link.receiveFrame(hello);
	}
	#resume(resume) {
		if (resume === void 0 || this.#isRefused) return this.close({
			code: ProtocolError,
			reason: "neither `resume` nor a hello"
		});
		const { client, entrance } = this;
		const { admission } = client;
		const found = this.#sessions.tokens.find(resume, admission?.principal);
		if (found === "stale") return this.close({
			code: Superseded,
			reason: "a later attempt came before this one"
		});
		if (found === "unknown") this.#abandoned = entrance.abandoned(resume.token, admission?.principal);
		else if (found.checkResume(resume)) {
			entrance.resume(client, found, resume);
			return this.settle();
		}
		this.#refuseResume();
	}
	#refuseResume() {
		const bye = this.#byeFor(this.entrance.checkSlot());
		if (bye !== void 0) return this.close(bye);
		this.#isRefused = true;
		this.client.socket.send(RESUME_REFUSED);
	}
	/** Reports a refusal, if there is one. Returns the bye for the client. */
	#byeFor(refusal) {
		if (refusal === void 0) return void 0;
		this.entrance.refused(refusal, this.client.request);
		return {
			code: fromHttpStatus(refusal.status),
			reason: refusal.reason
		};
	}
};
var EXTRA_BYTES = 1024;
var HELLO_WAIT_MS = 1e3;
function isStream(connection) {
	return "pause" in connection;
}
function runAround(around, call, send) {
	return promised(() => around(call, () => observed(send())));
}
function sendAll(peers, method, text, { except, whenSlow, volatile, latest, onDropped }) {
	const message = new EncodedMessage(text);
	const handle = new NotificationHandle(method, latest, whenSlow === "drop");
	let isDropped = false;
	for (const peer of peers) {
		const connection = connectionOf(peer);
		if (except?.has(peer) === true || connection.ended !== void 0 || volatile === true && !isReady(connection)) continue;
		if (connection.flow.sink.send(text, handle, message)) connection.counts.notificationsSent++;
		else if (handle.isBroadcast || staysOpen(connection, message)) {
			countDropped(connection, method);
			isDropped = true;
		}
	}
	if (isDropped) onDropped?.(utf8Bytes(text));
}
function staysOpen({ flow, transport }, message) {
	const { maxMessageBytes = Infinity, takesBytes } = transport;
	return flow.openingQueue !== void 0 || exceeds(sentForm(message.source, takesBytes, message), maxMessageBytes);
}
function accepts(peer, text) {
	return !exceeds(text, connectionOf(peer).transport.maxMessageBytes ?? Infinity);
}
var REQUEST_OPTIONS = {
	timeoutMs: optional(positive),
	signal: optional(anySignal),
	except: checkExcept
};
var SharedRequest = class {
	/** A notification with the same params. Its text ends as that of a request does. */
	#notification;
	/** Where the end begins: before the params. */
	#start;
	#calls = [];
	/** Throws a `TypeError` for params without a JSON form. */
	constructor(method, params) {
		this.method = method;
		this.#notification = encodeNotification$1(method, params);
		this.#start = encodeNotification$1(method).length - 1;
	}
	/** Calls one peer: makes a call without params, and adds them to its text. */
	call({ outgoing }, options) {
		const send = (text, handle) => {
			this.#calls.push(handle);
			const whole2 = this.#withParams(plainText(text).slice(0, -1));
			if (!outgoing.sink.send(whole2, handle)) outgoing.refused(whole2, handle);
			return true;
		};
		return outgoing.requestDirectly(this.method, void 0, options, { send });
	}
	#withParams(before) {
		const notification = this.#notification;
		if (typeof notification === "string") return before + notification.slice(this.#start);
		return notification.withJson(before + notification.json.slice(this.#start));
	}
	/** Rejects all calls that are pending. */
	abort(reason) {
		for (const call of this.#calls) call.calls.giveUp(call, reason);
	}
};
async function requestAll(peers, request, { timeoutMs, signal }) {
	const options = timeoutMs === void 0 ? void 0 : { timeoutMs };
	const call = async (peer) => {
		try {
			if (signal?.aborted) throw signal.reason;
			return {
				peer,
				status: "fulfilled",
				value: await request.call(connectionOf(peer), options)
			};
		} catch (reason) {
			return {
				peer,
				status: "rejected",
				reason
			};
		}
	};
	const ignore2 = signal && onAbort(signal, () => request.abort(signal.reason));
	const outcomes = await Promise.all(peers.map(call));
	ignore2?.();
	for (const { reason } of outcomes) shownAt(reason, request.method, requestAll);
	return outcomes;
}
var NOTIFY_OPTIONS = {
	...LIVE_OPTIONS,
	except: checkExcept,
	here: optional(must("true or false", (value) => typeof value === "boolean")),
	whenSlow: optional(oneOf("drop", "close"), "drop")
};
var NO_OPTIONS = checkLive(void 0, NOTIFY_OPTIONS);
function checkPeer(peer) {
	if (!(peer instanceof Peer$1)) throw expected("peer", "a `Peer`, and no id or handle of one", peer);
	return peer;
}
var PeerGroup = class {
	#members;
	constructor(members, all, topics) {
		this.#members = members;
		this.all = all;
		this.topics = topics;
	}
	get size() {
		return this.#members().size;
	}
	has(peer) {
		return this.#members().has(checkPeer(peer));
	}
	[Symbol.iterator]() {
		return this.#members().values();
	}
	notify(method, params, options) {
		const given = options === void 0 ? NO_OPTIONS : checkLive(options, NOTIFY_OPTIONS);
		const checked = {
			...given,
			except: this.#resolve(given.except)
		};
		const text = encodeNotification$1(method, params);
		const { around } = this.all.config;
		if (around === void 0) {
			sendAll([...this.#members()], method, text, checked);
			return this.all.node?.notifyElsewhere?.(this.topics, method, text, checked);
		}
		const call = this.record(method, params, checked.except, false, checked.volatile);
		if (call.peers.length === 0 && (this.all.node?.notifyElsewhere === void 0 || checked.here === true)) return;
		const send = async () => {
			const changed = encodeNotification$1(method, call.params);
			sendAll(call.peers, method, changed, checked);
			this.all.node?.notifyElsewhere?.(this.topics, method, changed, checked);
		};
		runAround(around, call, send).catch((error) => this.all.report(error, void 0, {
			method,
			id: void 0
		}));
	}
	request(method, params, options) {
		return this.#request(method, params, options).catch((error) => failed(error, method));
	}
	async #request(method, params, options) {
		const { except, ...settings } = checkOptions("options", options, REQUEST_OPTIONS);
		const excluded = this.#resolve(except);
		const message = new SharedRequest(method, params);
		const call = this.record(method, params, excluded, true);
		if (call.peers.length === 0) return [];
		const { around } = this.all.config;
		if (around === void 0) return requestAll(call.peers, message, settings);
		return runAround(around, call, async () => requestAll(call.peers, new SharedRequest(method, call.params), settings));
	}
	/** Returns the names of the topics or `"peers"`, for logs. In a message it throws a `TypeError`. */
	toJSON(key) {
		return shownAs(this.topics?.join(", ") ?? "peers", "group of peers", "write `[...it].map(({ id }) => id)`", key);
	}
	/** Returns what excludes a peer, also by its id. Throws a `TypeError` for a peer that no node of this server has. */
	#resolve(except) {
		if (except === void 0) return void 0;
		const { node } = this.all;
		const peers = new Set(except.peers);
		const ids = [];
		for (const one of except.peers) if (typeof one === "string") ids.push(one);
		else if (!this.all.canHave(one)) throw wrongExcept(one);
		if (ids.length > 0) {
			const named = node?.notifyElsewhere === void 0 ? [...this.#members()].filter(({ id }) => peers.has(id)) : ids.flatMap((id) => node.own.get(id) ?? []);
			for (const peer of named) peers.add(peer);
		}
		return new Exclusion({
			peers,
			topics: except.topics
		}, (topic) => this.all.topics.membersOf(topic));
	}
	/** Returns the message as `around` sees it. */
	record(method, params, except, isRequest, isVolatile = false) {
		const isTarget = (peer) => except?.has(peer) !== true && (!isVolatile || isReady(connectionOf(peer)));
		return {
			direction: "outgoing",
			peer: void 0,
			peers: [...this.#members()].filter(isTarget),
			topics: this.topics,
			method,
			id: void 0,
			isRequest,
			params,
			meta: void 0,
			context: void 0
		};
	}
};
var RecentEntries = class {
	#maxBytes;
	/** By topic, in the order of the last entry. So those that expire are near the beginning. */
	#logs = /* @__PURE__ */ new Map();
	#bytes = 0;
	/** `maxBytes`: of all logs. Beyond that, the log that was not appended to for longest is dropped. */
	constructor(maxBytes) {
		this.#maxBytes = maxBytes;
	}
	/** Adds the next entry of a log, and forgets the first ones beyond the rule. */
	append(topic, offset, body, rule) {
		const now = performance.now();
		const { entries = /* @__PURE__ */ new Map(), bytes: before = 0 } = unexpired(this.#logs, topic, now) ?? {};
		const added = utf8Bytes(body);
		entries.set(offset, [body, added]);
		let bytes2 = before + added;
		while (entries.size > rule.length || entries.size > 1 && bytes2 > rule.bytes) {
			const first = offset - entries.size + 1;
			bytes2 -= entries.get(first)[1];
			entries.delete(first);
		}
		this.drop(topic);
		this.#logs.set(topic, {
			entries,
			bytes: bytes2,
			expiresAt: now + rule.ttlMs
		});
		this.#bytes += bytes2;
		let left = 2;
		for (const [first, { expiresAt }] of this.#logs) {
			if (!(expiresAt <= now && left-- > 0) && this.#bytes <= this.#maxBytes) return;
			this.drop(first);
		}
	}
	/** Returns the entries after an offset, until the page is full. */
	read(topic, after, page) {
		const entries = unexpired(this.#logs, topic, performance.now())?.entries ?? /* @__PURE__ */ new Map();
		const [first = 0] = entries.keys();
		const found = [];
		let read = 0;
		for (let offset = Math.max(first, after + 1); found.length < page.length && read < page.bytes; offset++) {
			const [body, bytes2] = entries.get(offset) ?? [];
			if (bytes2 === void 0) break;
			found.push([offset, body]);
			read += bytes2;
		}
		return found;
	}
	drop(topic) {
		this.#bytes -= this.#logs.get(topic)?.bytes ?? 0;
		this.#logs.delete(topic);
	}
};
var MAX_LOGS_BYTES = 128 * 2 ** 20;
var KEY_MS = 12e4;
var DAY_MS = 864e5;
var MAX_BEGUN = 1e5;
var MemoryLogs = class {
	#entries = new RecentEntries(MAX_LOGS_BYTES);
	/** By topic, in the order of the last publication, so that those that expire are near the beginning. */
	#tops = /* @__PURE__ */ new Map();
	/** Those that have begun and have no entry. Clients may choose their topics. In the order of the last read. */
	#begun = /* @__PURE__ */ new Map();
	/** By topic and key, in the order of the publication. */
	#keys = /* @__PURE__ */ new Map();
	/** As `EngineLog.append`. `isNew`: whether the entry was appended. */
	append(topic, body, rule, key) {
		const now = performance.now();
		const log = this.#topOf(topic, now);
		const keyName = key === void 0 ? void 0 : publicationName(topic, key);
		const earlier = keyName === void 0 ? void 0 : unexpired(this.#keys, keyName, now);
		if (earlier !== void 0 && earlier.position.epoch === log?.epoch) return {
			position: earlier.position,
			isNew: false
		};
		const position = {
			epoch: log?.epoch ?? newEpoch(),
			offset: (log?.top ?? 0) + 1
		};
		const { epoch, offset: top } = position;
		this.#entries.append(topic, top, body, rule);
		this.#begun.delete(topic);
		keep(this.#tops, topic, {
			epoch,
			top,
			expiresAt: now + rule.ttlMs + DAY_MS
		}, now);
		if (keyName !== void 0) keep(this.#keys, keyName, {
			position,
			expiresAt: now + KEY_MS
		}, now);
		return {
			position,
			isNew: true
		};
	}
	/** As `EngineLog.read`. */
	read(topic, after, page, begin) {
		const now = performance.now();
		const { epoch, top } = this.#topOf(topic, now) ?? {
			epoch: begin === void 0 ? "" : newEpoch(),
			top: 0
		};
		if (begin !== void 0 && top === 0) {
			keep(this.#begun, topic, {
				epoch,
				top,
				expiresAt: now + begin.ttlMs + DAY_MS
			}, now);
			if (this.#begun.size > MAX_BEGUN) this.#begun.delete(this.#begun.keys().next().value);
		}
		return {
			epoch,
			top,
			entries: this.#entries.read(topic, after, page)
		};
	}
	#topOf(topic, now) {
		return unexpired(this.#tops, topic, now) ?? unexpired(this.#begun, topic, now);
	}
};
function unexpired(map, name, now) {
	const kept = map.get(name);
	return kept !== void 0 && kept.expiresAt > now ? kept : void 0;
}
function keep(map, name, value, now) {
	map.delete(name);
	map.set(name, value);
	let left = 2;
	for (const [first, { expiresAt }] of map) {
		if (expiresAt > now || left-- === 0) return;
		map.delete(first);
	}
}
var OwnPeers = class {
	#host;
	#changed;
	#byId = /* @__PURE__ */ new Map();
	/** The peers of each principal, and when their clients were authenticated. */
	#byPrincipal = /* @__PURE__ */ new Map();
	#principals = /* @__PURE__ */ new Map();
	/** `changed`: a principal has its first peer here, or has none any more. */
	constructor(host, changed = () => {}) {
		this.#host = host;
		this.#changed = changed;
	}
	/** A peer is open. `since`: when its client was authenticated. */
	opened(peer, principal, since = performance.now()) {
		this.#byId.set(peer.id, peer);
		if (principal === void 0) return;
		this.#principals.set(peer, principal);
		let peers = this.#byPrincipal.get(principal);
		if (peers === void 0) {
			this.#byPrincipal.set(principal, peers = /* @__PURE__ */ new Map());
			this.#changed(principal, true);
		}
		peers.set(peer, since);
	}
	/** A peer is closed. */
	closed(peer) {
		this.#byId.delete(peer.id);
		const principal = this.#principals.get(peer);
		if (principal === void 0) return;
		this.#principals.delete(peer);
		const peers = this.#byPrincipal.get(principal);
		peers.delete(peer);
		if (peers.size > 0) return;
		this.#byPrincipal.delete(principal);
		this.#changed(principal, false);
	}
	get(id) {
		return this.#byId.get(id);
	}
	#find(id, method) {
		const peer = this.#byId.get(id);
		if (peer === void 0) throw new ConnectionLostError(method, "not-sent", NO_PEER);
		return peer;
	}
	async request(id, method, params, options = {}) {
		return connectionOf(this.#find(id, method)).outgoing.request(method, params, options);
	}
	notify(id, method, params) {
		this.#byId.get(id)?.notify(method, params);
	}
	async close(id, code, reason) {
		await this.#find(id, "close").close(code, reason);
	}
	notifyAll(principal, method, params) {
		for (const peer of this.#byPrincipal.get(principal)?.keys() ?? []) peer.notify(method, params);
	}
	/** Returns the ids of the peers of a principal. */
	idsOf(principal) {
		return Array.from(this.#byPrincipal.get(principal)?.keys() ?? [], ({ id }) => id);
	}
	async find(principal) {
		return {
			ids: this.idsOf(principal),
			isComplete: true
		};
	}
	async disconnect(principal, code, reason) {
		return {
			closed: this.closeAll(principal, code, reason),
			isComplete: true
		};
	}
	/** Closes the peers of a principal whose clients were authenticated until `until`. Returns how many. */
	closeAll(principal, code, reason, until = Infinity) {
		const peers = [...this.#byPrincipal.get(principal) ?? []].flatMap(([peer, since]) => since > until ? [] : peer);
		this.#host.disconnected(principal, until);
		for (const peer of peers) peer.close(code, reason).catch((error) => this.#host.report(error));
		return peers.length;
	}
};
var NO_PEER = /* @__PURE__ */ new Error("no such peer");
function parsed(json) {
	try {
		return JSON.parse(json);
	} catch {
		return;
	}
}
function notificationIn(body) {
	const message = parsed(body);
	return classify(message) === "notification" ? message : void 0;
}
var PAGE = {
	length: 500,
	bytes: 262144
};
function encodeEntry(method, params) {
	if (isObject(params) && "at" in params) throw expected("params.at", "absent, because the log adds it", params.at);
	const body = plainText(encodeNotification$1(method, params ?? {}));
	if (body[encodeNotification$1(method).length + 10 - 1] === "{") return body;
	throw expected("params", "an object, because a publication has params by name", params);
}
function publicationOf(position, body) {
	const { method, params } = notificationIn(body) ?? {};
	if (method === void 0 || !body.endsWith("}}")) return void 0;
	if (!isObject(params) || Array.isArray(params)) return void 0;
	return {
		method,
		text: placed(position, body)
	};
}
function placed(position, body) {
	const before = body.slice(0, -2);
	return `${before}${before.endsWith("{") ? "" : ","}"at":"${textOf(position)}"}}`;
}
var Replay = class {
	#epoch;
	#to;
	#publications;
	/** How much more the client can get. */
	#leftLength;
	constructor({ epoch, offset }, to, maxLength) {
		this.outcome = void 0;
		this.#publications = [];
		this.#epoch = epoch;
		this.next = offset + 1;
		this.#to = to;
		this.#leftLength = maxLength;
	}
	/** The publications. `undefined` for a gap. */
	get missed() {
		return this.outcome === "complete" ? this.#publications : void 0;
	}
	/** Takes a page. It is a gap if that is of another log, or does not have the next entry. */
	take({ epoch, entries }) {
		if (epoch !== this.#epoch || entries.length === 0) this.outcome = "gap";
		for (const [offset, body] of entries) {
			if (offset < this.next || this.outcome !== void 0) continue;
			this.#leftLength -= body.length;
			const publication = publicationOf({
				epoch,
				offset
			}, body);
			if (publication !== void 0) this.#publications.push(publication);
			if (offset > this.next || this.#leftLength < 0) this.outcome = "gap";
			else if (offset === this.#to) this.outcome = "complete";
			this.next = offset + 1;
		}
	}
};
async function readEntries(options, read) {
	const { since, limit } = checkOptions("options", options, READ_OPTIONS);
	const from = positionOf(since);
	const page = {
		...PAGE,
		length: limit
	};
	let part = await read(from?.offset ?? 0, page);
	const isSame = from !== void 0 && part.epoch === from.epoch && from.offset <= part.top;
	if (from !== void 0 && !isSame) part = await read(0, page);
	const { epoch, top } = part;
	const first = part.entries[0]?.[0];
	const isComplete = isSame && (first === void 0 ? from.offset === top : first === from.offset + 1);
	const entries = part.entries.flatMap(([offset, body]) => {
		const publication = publicationOf({
			epoch,
			offset
		}, body);
		if (publication === void 0) return [];
		const { method, params } = JSON.parse(publication.text);
		return [{
			at: textOf({
				epoch,
				offset
			}),
			method,
			params
		}];
	});
	return {
		at: textOf({
			epoch,
			offset: part.entries.at(-1)?.[0] ?? top
		}),
		outcome: isComplete ? "complete" : "gap",
		entries
	};
}
var EPOCH_LENGTH = 12;
function memberOf(id, as) {
	return {
		id,
		as: parsed(as) ?? null
	};
}
function checkJoin(peer, isRemoved) {
	if (peer.state === "closed") throw new ConnectionLostError("join", "not-sent", /* @__PURE__ */ new Error("the peer is closed"));
	if (isRemoved) throw new EngineError("the peer left the topic before it had joined", "not-sent");
}
var NodeTopic = class {
	#host;
	#watchers;
	#listAt;
	/** `gap`: takes the reason why members miss a publication of which they have a report. Throws a `TypeError` for bad rules. */
	constructor(name, host, gap) {
		this.uses = 0;
		this.#watchers = /* @__PURE__ */ new Set();
		const { logRule, memberRule } = checkRules(synchronous(host.rulesOf(name), "`topics`"));
		this.name = name;
		this.logRule = logRule;
		this.memberRule = memberRule;
		this.missed = (bytes2) => gap(`a publication of ${bytes2} bytes is longer than \`maxMessageBytes\` of a member`);
		this.publicationOptions = {
			whenSlow: "close",
			onDropped: this.missed
		};
		this.#host = host;
	}
	/** Throws unless the rules allow these options of `join`. */
	checkJoin(since, as) {
		if (since !== void 0 && this.logRule === void 0) throw new TypeError("`since` requires the rule `log` of the topic");
		if (as !== void 0 && this.memberRule === void 0) throw new TypeError("`as` requires the rule `members` of the topic");
	}
	/** Throws if a list of that size has no room for another member. */
	checkRoom(size) {
		if (size >= MAX_MEMBERS) throw new RangeError(`"${this.name}" has ${MAX_MEMBERS} members already`);
	}
	/** Throws unless the topic has a log. */
	needLog() {
		if (this.logRule !== void 0) return this.logRule;
		throw new TypeError(`"${this.name}" has no log: return the rule \`log\` for it in \`topics\``);
	}
	/** Throws unless the topic has a list of members. */
	needMembers() {
		if (this.memberRule === void 0) throw new TypeError(`"${this.name}" has no list of members: return the rule \`members\` for it in \`topics\``);
	}
	/** The `at` of the changes of the list on this node. Throws unless members are notified of them. */
	get listAt() {
		if (typeof this.memberRule === "string") return this.#listAt ??= `${nanoid(EPOCH_LENGTH)}.0`;
		throw new TypeError(`"${this.name}" does not notify its members: name a notification as its rule \`members\` in \`topics\``);
	}
	/** Calls `listener` at each change of the list. Returns what ends that, once: true if it did. */
	watch(listener) {
		const watcher = (event, member2) => listener(event, member2);
		this.#watchers.add(watcher);
		return () => this.#watchers.delete(watcher);
	}
	/** A member joined, changed its `as` or left. */
	changed(event, member2) {
		const host = this.#host;
		const method = this.memberRule;
		if (typeof method === "string") {
			const members = [...host.membersOf(this.name)].filter(({ id }) => id !== member2.id);
			const change = {
				event,
				...member2,
				at: this.listAt
			};
			const latest = `${change.at} ${member2.id}`;
			if (members.length > 0) host.send(members, method, encodeNotification$1(method, change), {
				whenSlow: "drop",
				latest
			});
		}
		for (const watcher of Array.from(this.#watchers)) runReporting(() => watcher(event, member2), (error) => host.report(error));
	}
};
var NodeTopics = class {
	constructor() {
		this.topics = /* @__PURE__ */ new Map();
		this.isClosed = false;
	}
	/** A topic is in use from now on. */
	begin(_topic) {}
	/** A topic is in use no more. */
	end(_topic) {}
	/** Returns the topic. One that is not in use is new. */
	find(name) {
		return this.topics.get(name) ?? this.make(name);
	}
	/** Returns the topic, and keeps it until `release`. */
	acquire(name) {
		const topic = this.find(name);
		if (topic.uses++ === 0) {
			this.topics.set(name, topic);
			this.begin(topic);
		}
		return topic;
	}
	release(topic) {
		if (--topic.uses > 0) return;
		this.topics.delete(topic.name);
		this.end(topic);
	}
	/** The topic has its first member on this node. Throws a `TypeError` for bad rules. */
	opened(name) {
		this.acquire(name);
	}
	/** The topic has lost its last member on this node. */
	closed(name) {
		const topic = this.topics.get(name);
		if (topic !== void 0) this.release(topic);
	}
	/** No topic is used any more. */
	close() {
		this.isClosed = true;
	}
	#checkOpen() {
		if (this.isClosed) throw new EngineError("the server is closed", "not-sent");
	}
	/** A peer left, or shall not join. */
	left(name, peer) {
		this.hide(name, peer);
	}
	async join(name, peer, options) {
		const { since, as } = checkOptions("options", options, JOIN_OPTIONS);
		const asText = as === void 0 ? void 0 : encodeAs(as);
		this.#checkOpen();
		const topic = this.acquire(name);
		try {
			topic.checkJoin(since, as);
			return await this.enter(topic, peer, positionOf(since), asText);
		} finally {
			this.release(topic);
		}
	}
	async publish(name, method, params, options) {
		const checked = checkOptions("options", options, PUBLISH_OPTIONS);
		const body = encodeEntry(method, params);
		this.#checkOpen();
		const topic = this.find(name);
		return textOf(await this.append(topic, {
			method,
			body,
			rule: topic.needLog(),
			...checked
		}));
	}
	async read(name, options) {
		this.#checkOpen();
		const rule = this.find(name).needLog();
		return readEntries(options, (after, page) => this.page(name, after, page, rule));
	}
	async members(name, options) {
		const { limit } = checkOptions("options", options, MEMBERS_OPTIONS);
		this.#checkOpen();
		this.find(name).needMembers();
		const topic = this.acquire(name);
		try {
			return await this.list(topic, limit);
		} finally {
			this.release(topic);
		}
	}
	/** Returns the `at` of the changes of a list. Throws unless members are notified of them. */
	listAt(name) {
		return this.find(name).listAt;
	}
	watch(name, listener) {
		this.find(name).needMembers();
		const topic = this.acquire(name);
		const end = topic.watch(listener);
		return () => {
			if (end()) this.release(topic);
		};
	}
};
var MAX_BYTES = 16 * 2 ** 20;
var ID_LENGTH$1 = 12;
var ALL = {
	length: Infinity,
	bytes: Infinity
};
var LocalTopic = class extends NodeTopic {
	constructor() {
		super(...arguments);
		this.members = /* @__PURE__ */ new Map();
		this.epoch = void 0;
	}
	set(peer, as) {
		if (this.members.get(peer) === as) return;
		if (!this.members.has(peer)) this.checkRoom(this.members.size);
		this.members.set(peer, as);
		this.changed("joined", memberOf(peer.id, as));
	}
	delete(peer) {
		const as = this.members.get(peer);
		if (this.members.delete(peer)) this.changed("left", memberOf(peer.id, as));
	}
};
var LocalTopics = class extends NodeTopics {
	#host;
	#logs = new MemoryLogs();
	constructor(host) {
		super();
		this.#host = host;
	}
	make(name) {
		return new LocalTopic(name, this.#host, (reason) => this.#host.gap(name, reason, []));
	}
	/** No peer is about to join. */
	added() {}
	hide(name, peer) {
		this.topics.get(name)?.delete(peer);
	}
	async enter(topic, peer, since, as) {
		try {
			return this.#join(topic, peer, since, as);
		} finally {
			if (!this.#host.membersOf(topic.name).has(peer)) topic.delete(peer);
		}
	}
	#join(topic, peer, since, as) {
		const { name, logRule, publicationOptions } = topic;
		const host = this.#host;
		checkJoin(peer, false);
		const log = logRule && this.#logs.read(name, Infinity, ALL, logRule);
		const at = log && {
			epoch: log.epoch,
			offset: log.top
		};
		if (at !== void 0) this.#follow(topic, at.epoch);
		const missed = at && since && this.#since(name, peer, since, at);
		if (as !== void 0) topic.set(peer, as);
		for (const { method, text } of missed ?? []) host.send([peer], method, text, publicationOptions);
		host.add(name, peer);
		checkJoin(peer, !host.membersOf(name).has(peer));
		return at === void 0 ? {} : {
			at: textOf(at),
			outcome: missed === void 0 ? "gap" : "complete"
		};
	}
	/** Reports a gap if the log that members know has expired, and another one began. */
	#follow(topic, epoch) {
		const { name, epoch: known = epoch } = topic;
		topic.epoch = epoch;
		if (known !== epoch) this.#host.gap(name, "another log began", this.#host.membersOf(name));
	}
	/** Returns what a peer has missed since a position; `undefined` for a gap. */
	#since(name, peer, since, at) {
		if (since.epoch === at.epoch && since.offset === at.offset) return [];
		if (this.#host.membersOf(name).has(peer)) return void 0;
		const replay = new Replay(since, at.offset, this.#host.maxReplayLength);
		replay.take(this.#logs.read(name, since.offset, ALL));
		return replay.missed?.every(({ text }) => this.#host.accepts(peer, text)) === true ? replay.missed : void 0;
	}
	async append(topic, { method, body, rule, key }) {
		const { name } = topic;
		const bytes2 = utf8Bytes(body);
		if (bytes2 > MAX_BYTES) throw new TooLargeError(method, bytes2, MAX_BYTES);
		const { position, isNew } = this.#logs.append(name, body, rule, key);
		this.#follow(topic, position.epoch);
		if (isNew) this.#host.send(this.#host.membersOf(name), method, placed(position, body), topic.publicationOptions);
		return position;
	}
	async page(topic, after, page, rule) {
		return this.#logs.read(topic, after, page, rule);
	}
	async list({ members }, limit) {
		return [...members].slice(0, limit).map(([{ id }, as]) => memberOf(id, as));
	}
};
var LocalNode = class {
	constructor(host) {
		this.id = nanoid(ID_LENGTH$1);
		this.topics = new LocalTopics(host);
		this.own = this.calls = this.principals = new OwnPeers(host);
	}
	get nodes() {
		return {
			id: this.id,
			live: [this.id],
			notify(method, params, options) {
				refuseOptions(options);
				encodeNotification$1(method, params);
			}
		};
	}
	async close() {
		this.topics.close();
	}
};
var METHOD = "change";
var POLL_MS = 500;
var WAIT_MS = 3e4;
var MAX_RESPONSE_BYTES = 65536;
var sleep = () => new Promise((resolve) => setTimeout(resolve, POLL_MS));
var Changes = class {
	#all;
	#hash;
	constructor(all, hash) {
		this.#all = all;
		this.#hash = hash;
	}
	/** Does what `Server.runOnce` promises. */
	async runOnce(context, run) {
		const given = callOf(context);
		if (given === void 0) throw expected("context", "the context of a handler", context);
		anyFunction(run, "run");
		const { call, connection } = given;
		const principal = connection.hooks.principalOf?.(connection.peer);
		if (principal === void 0) throw new TypeError("`runOnce` requires the option `principal`");
		const key = member(call.params, "key");
		if (!isKey(key)) throw new RpcError(InvalidParams, `Invalid params: expected \`key\` to be ${KEY_RULE}`);
		const topic = RESERVED + this.#hash(JSON.stringify([principal, call.method]));
		const response = await this.#responseOf(topic, key, given, run);
		if ("result" in response) return response.result;
		const { code, message, data } = response.error;
		throw new RpcError(code, message, data);
	}
	/**
	* Reads the log to its end. If the log does not have the key, appends a claim, and reads on. Runs the change if the first claim of the key
	* is its own: so all nodes agree on which call runs the change, by the order of the log. Otherwise waits for the response of the other call.
	*/
	async #responseOf(topic, key, given, run) {
		const end = performance.now() + WAIT_MS;
		const ownClaim = nanoid();
		let isClaimed = false;
		let firstClaim;
		let since;
		for (;;) {
			const { at, entries } = await this.#try(() => this.#all.anyNode.topics.read(topic, {
				since,
				limit: 1e3
			}));
			const found = entries.map(({ params }) => params).filter((params) => params.key === key);
			const { response } = found.find((params) => params.response !== void 0) ?? {};
			if (response !== void 0) return response;
			firstClaim ??= found[0]?.claim;
			if (firstClaim === ownClaim) {
				const own = await responseTo(given, run);
				await this.#append(topic, {
					key,
					response: own
				}).catch((error) => this.#all.report(error));
				return own;
			}
			since = at;
			if (entries.length > 0) continue;
			if (firstClaim === void 0) {
				if (isClaimed) throw new EngineError(`the log has no room for "${key}"`, "not-sent");
				isClaimed = true;
				await this.#append(topic, {
					key,
					claim: ownClaim
				});
			} else if (given.call.isAwaited && performance.now() < end) await sleep();
			else throw new EngineError(`no outcome of "${key}" within ${WAIT_MS} ms`, "unknown");
		}
	}
	/** Appends an entry, once: all attempts have the same `key` of a publication. */
	#append(topic, entry) {
		const key = nanoid();
		return this.#try(() => this.#all.anyNode.topics.publish(topic, METHOD, entry, { key }));
	}
	/** Returns what `act` returns. While it rejects with an `EngineError`, calls it again until `WAIT_MS` have passed or the server is closed. */
	async #try(act) {
		for (const end = performance.now() + WAIT_MS;; await sleep()) try {
			return await act();
		} catch (error) {
			if (!(error instanceof EngineError) || this.#all.hasLeft || performance.now() >= end) throw error;
		}
	}
};
async function responseTo({ call, connection }, run) {
	const { id = null, method, slot } = call;
	let text;
	try {
		const result = await run();
		if (isStreamed(result)) {
			discard(connection.incoming, new IncomingCall(void 0, method, void 0, slot), result);
			throw new TypeError("`runOnce` cannot repeat a stream");
		}
		text = encodeResult$1(null, result);
	} catch (error) {
		text = connection.incoming.encodeFailure(id, method, error);
	}
	const isTooLong = exceeds(plainText(text), MAX_RESPONSE_BYTES);
	return JSON.parse(plainText(isTooLong ? encodeTooLarge(null, MAX_RESPONSE_BYTES) : text));
}
var POOL_BYTES = 2048;
var pool = new Uint8Array(POOL_BYTES);
var used = POOL_BYTES;
var makeText = customRandom(urlAlphabet, POOL_BYTES, (count) => {
	if (used + count > POOL_BYTES) {
		crypto.getRandomValues(pool);
		used = 0;
	}
	used += count;
	return pool.subarray(used - count, used);
});
function randomText(length) {
	if (length > POOL_BYTES) throw new RangeError(`Expected at most ${POOL_BYTES} characters, got \`${length}\``);
	const text = makeText(length);
	pool.fill(0, used - length, used);
	return text;
}
var TokenRegistry = class {
	#options;
	#byHash = /* @__PURE__ */ new Map();
	#resumable = 0;
	constructor(options) {
		this.#options = options;
	}
	/** Number of accepted tokens. */
	get size() {
		return this.#byHash.size;
	}
	/** Number of sessions that can be resumed. */
	get resumable() {
		return this.#resumable;
	}
	/** Returns a token for a session that may start. */
	makeToken() {
		return this.#options.makeToken();
	}
	/** Registers a session whose client was offered `token`, and accepts the token from now on (rule 9). */
	open(session, token) {
		session.nextHash = this.#options.hash(token);
		this.#byHash.set(session.nextHash, session);
		this.#resumable++;
	}
	/** Stops accepting the previous token, because the client has the newest one (rule 4). */
	confirm(session) {
		const { confirmedHash, nextHash } = session;
		if (nextHash === void 0) return;
		if (confirmedHash !== void 0) this.#byHash.delete(confirmedHash);
		session.confirmedHash = nextHash;
		session.nextHash = void 0;
	}
	/** Finds the session that `resume` names, for that principal. Records the attempt. */
	find({ token, attempt }, principal) {
		const session = this.byHash(this.#options.hash(token), principal);
		if (session === void 0) return "unknown";
		if (attempt <= session.attempt) return "stale";
		session.attempt = attempt;
		return session;
	}
	/** Returns the session of a hash, for that principal. */
	byHash(hash, principal) {
		const session = this.#byHash.get(hash);
		return session?.principal === principal ? session : void 0;
	}
	/** Returns a new token for a session that `token` resumes. It replaces the last one issued and not confirmed (rule 4). */
	renew(session, token) {
		const options = this.#options;
		if (options.hash(token) === session.nextHash) this.confirm(session);
		if (session.nextHash !== void 0) this.#byHash.delete(session.nextHash);
		const newest = options.makeToken();
		session.nextHash = options.hash(newest);
		this.#byHash.set(session.nextHash, session);
		return newest;
	}
	/** Removes all tokens of a session, so that it cannot be resumed. May be called twice. */
	drop(session) {
		const { confirmedHash, nextHash } = session;
		if (confirmedHash === void 0 && nextHash === void 0) return;
		this.#resumable--;
		if (confirmedHash !== void 0) this.#byHash.delete(confirmedHash);
		if (nextHash !== void 0) this.#byHash.delete(nextHash);
		session.confirmedHash = session.nextHash = void 0;
	}
};
var SessionRegistry = class {
	/**
	* The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: a Set finds its
	* first member only by skipping the places of all members deleted before it.
	*/
	#unnamed = new List();
	#named = new List();
	#byPrincipal = /* @__PURE__ */ new Map();
	#suspended = 0;
	#stored = 0;
	/** The length of the broadcasts that are queued in suspended sessions. It has its own bound, which ends no session. */
	#storedBroadcasts = 0;
	constructor(options) {
		this.options = options;
		this.tokens = new TokenRegistry(options);
	}
	/** Number of sessions without a socket. Each takes a connection slot. */
	get suspended() {
		return this.#suspended;
	}
	/** Number of sessions that have a socket and can be resumed over another. */
	get live() {
		return this.tokens.resumable - this.#suspended;
	}
	/** What the suspended sessions hold, in UTF-16 code units. */
	get stored() {
		return this.#stored + this.#storedBroadcasts;
	}
	/**
	* Returns the link of a new client. `principal` names the user: only the same principal may resume the session. If it is
	* `undefined`, only the token decides, and `maxSuspendedPerPrincipal` does not apply.
	*/
	link(socket, principal) {
		return this.begin(socket, principal, this.offer(socket));
	}
	/** Sends the hello to a client, which offers a session. Returns the token of the session. */
	offer(socket) {
		const { ttlMs, limits, route } = this.options;
		const token = this.options.makeToken();
		socket.send(serverHello({
			token,
			ttlMs,
			limits: pickLimits(limits),
			route
		}, limits.bytes));
		return token;
	}
	/** Returns the link of the session that was offered with `token`. */
	begin(socket, principal, token) {
		return new ServerSession(this, principal, socket, token).link;
	}
	/** Ends the oldest suspended session with 1013 and this reason. Prefers sessions without a principal. */
	evict(reason) {
		(this.#unnamed.first ?? this.#named.first)?.session.end(reason);
	}
	/** Ends the session of a token, if it is here: its client has discarded it, because another node refused it. */
	endAbandoned(hash, principal) {
		this.tokens.byHash(hash, principal)?.link.end(Superseded, "the client has discarded this session, because another node refused it");
	}
	/** Adds a session that has lost its socket to the suspended ones, and enforces their bounds. */
	suspend(session) {
		session.place = { session };
		(session.principal === void 0 ? this.#unnamed : this.#named).add(session.place);
		this.#suspended++;
		this.#boundPrincipal(session);
		this.update(session);
	}
	/** Removes a session that was resumed or has ended from the suspended ones. Does nothing if it is not suspended. */
	release(session) {
		if (session.place === void 0) return;
		unlink(session.place);
		session.place = void 0;
		this.#suspended--;
		this.#stored -= session.stored;
		this.#storedBroadcasts -= session.storedBroadcasts;
		session.stored = session.storedBroadcasts = 0;
		const { principal } = session;
		const siblings = principal === void 0 ? void 0 : this.#byPrincipal.get(principal);
		siblings?.delete(session);
		if (siblings?.size === 0) this.#byPrincipal.delete(principal);
	}
	/** Updates the count of what a suspended session holds. While all together hold too much, ends the session that holds most. */
	update(session) {
		if (session.place === void 0) return;
		const { storedLength, storedBroadcastLength } = session.link;
		this.#stored += storedLength - session.stored;
		session.stored = storedLength;
		this.#storedBroadcasts += storedBroadcastLength - session.storedBroadcasts;
		session.storedBroadcasts = storedBroadcastLength;
		while (this.#stored > this.options.maxStoredLength && this.#endLargest());
	}
	/** Ends the suspended session that holds most. Returns false if that released nothing. */
	#endLargest() {
		const before = this.#suspended;
		[...this.#unnamed.toArray(), ...this.#named.toArray()].reduce((most, other) => other.session.stored > most.session.stored ? other : most).session.end("suspended sessions hold more than `maxSuspendedBytes` together");
		return this.#suspended < before;
	}
	/** Returns true if suspended sessions may hold so much more of queued broadcasts. */
	acceptsBroadcast(length) {
		return this.#storedBroadcasts + length <= this.options.maxStoredLength / 4;
	}
	#boundPrincipal(session) {
		const { principal } = session;
		if (principal === void 0) return;
		let siblings = this.#byPrincipal.get(principal);
		if (siblings === void 0) this.#byPrincipal.set(principal, siblings = /* @__PURE__ */ new Set());
		siblings.add(session);
		const [oldest] = siblings;
		if (siblings.size > this.options.maxSuspendedPerPrincipal) oldest.end("the principal has more suspended sessions than `maxSuspendedPerPrincipal`");
	}
};
var ServerSession = class {
	#sessions;
	constructor(sessions, principal, socket, token) {
		this.place = void 0;
		this.stored = 0;
		this.storedBroadcasts = 0;
		this.confirmedHash = void 0;
		this.nextHash = void 0;
		this.attempt = 0;
		this.principal = principal;
		this.#sessions = sessions;
		sessions.tokens.open(this, token);
		const { limits, ttlMs } = sessions.options;
		this.link = new ServerLink(limits, this);
		this.link.attachSocket(socket, "greeting", new Session(limits, {
			ttlMs,
			limits: UNKNOWN_LIMITS
		}));
	}
	confirmed() {
		this.#sessions.tokens.confirm(this);
	}
	suspended() {
		this.#sessions.suspend(this);
	}
	storedChanged() {
		this.#sessions.update(this);
	}
	acceptsBroadcast(length) {
		return this.#sessions.acceptsBroadcast(length);
	}
	resumptionEnded() {
		this.#sessions.release(this);
		this.#sessions.tokens.drop(this);
	}
	/** Ends the session with 1013, because a bound of the server is exceeded. */
	end(reason) {
		this.link.end(TryAgainLater, reason);
	}
	/** Returns false if the session has expired, or if `received` cannot be true, which ends the session. */
	checkResume({ received }) {
		const { link } = this;
		if (link.checkExpiry()) return false;
		const isTrue = link.state.session.canHaveReceived(received);
		if (!isTrue) link.fail("`received` is no count of the frames sent");
		return isTrue;
	}
	/** Resumes the session over `socket`. */
	resume(socket, resume) {
		this.#sessions.release(this);
		this.link.resume(socket, resume, () => this.#sessions.tokens.renew(this, resume.token));
	}
};
var Tally = class {
	#live = /* @__PURE__ */ new Set();
	#counts = newCounts();
	#bytesReceived = 0;
	#bytesSent = 0;
	#opened = 0;
	#resumed = 0;
	#refused = {};
	#closed = {};
	opened(peer) {
		this.#opened++;
		this.#live.add(peer);
	}
	resumed() {
		this.#resumed++;
	}
	refused({ status }) {
		this.#refused[status] = (this.#refused[status] ?? 0) + 1;
	}
	closed(peer, { code }) {
		this.#live.delete(peer);
		this.#closed[code] = (this.#closed[code] ?? 0) + 1;
		const stats = peer.stats();
		addCounts(this.#counts, stats);
		this.#bytesReceived += stats.bytesReceived;
		this.#bytesSent += stats.bytesSent;
	}
	/** Returns the sums over all peers, open and closed. */
	sum(load) {
		const counts = { ...this.#counts };
		const gauges = {
			pending: 0,
			running: 0,
			streams: 0,
			unsentBytes: 0
		};
		let bytesReceived = this.#bytesReceived;
		let bytesSent = this.#bytesSent;
		for (const peer of this.#live) {
			const stats = peer.stats();
			addCounts(counts, stats);
			for (const name of Object.keys(gauges)) gauges[name] += stats[name];
			bytesReceived += stats.bytesReceived;
			bytesSent += stats.bytesSent;
		}
		const refused = { ...this.#refused };
		const closed = { ...this.#closed };
		const happened = {
			opened: this.#opened,
			resumed: this.#resumed,
			refused,
			closed
		};
		return {
			...load,
			...counts,
			...gauges,
			bytesReceived,
			bytesSent,
			...happened
		};
	}
};
var EVENTS$1 = {
	join: 0,
	leave: 0
};
var TopicEmitter = class TopicEmitter extends EventEmitter {
	static {
		refuseUnknownEvents(TopicEmitter.prototype, EVENTS$1);
	}
};
var EMPTY = /* @__PURE__ */ new Set();
var Topics = class {
	#members = /* @__PURE__ */ new Map();
	/** The names of each peer's topics. Many peers have only one, and a Set for each would take memory. */
	#joined = /* @__PURE__ */ new Map();
	/** The listeners of each topic that has any. */
	#emitters = /* @__PURE__ */ new Map();
	constructor(peers) {
		this.peers = peers;
	}
	/** Returns the topic of that name. Throws a `TypeError` for a value that is no name. */
	topic(name) {
		return new TopicView(this, topicName(name, "name"));
	}
	/** Returns the peers of any of these topics. Throws a `TypeError` for a value that is no name, and for too many names. */
	union(names) {
		const topics = Array.from(new Set(names), (name) => topicName(name, "name"));
		if (topics.length > MAX_NAMED) throw expected("names", `at most ${MAX_NAMED} topics`, topics.length);
		const membersOf = () => new Set(topics.flatMap((name) => [...this.membersOf(name)]));
		return new PeerGroup(membersOf, this.peers, topics);
	}
	/** Number of topics that have members. */
	get size() {
		return this.#members.size;
	}
	/** The names of the topics that have members. */
	get names() {
		return this.#members.keys();
	}
	/** Returns the members of a topic. */
	membersOf(name) {
		return this.#members.get(name) ?? EMPTY;
	}
	/** Adds a peer to a topic, unless it is a member. */
	add(name, peer) {
		let members = this.#members.get(name);
		if (members?.has(peer)) return;
		const { node } = this.peers;
		if (node !== void 0) {
			if (members === void 0) node.topics.opened(name);
			node.topics.added(name, peer);
		}
		if (members === void 0) this.#members.set(name, members = /* @__PURE__ */ new Set());
		members.add(peer);
		const joined = this.#joined.get(peer) ?? name;
		if (typeof joined !== "string") joined.add(name);
		else this.#joined.set(peer, joined === name ? name : /* @__PURE__ */ new Set([joined, name]));
		this.#emit(name, "join", peer);
	}
	/** Removes a peer from a topic. Returns true if it was a member. */
	delete(name, peer) {
		this.peers.node?.topics.left(name, peer);
		if (!this.#removeMember(name, peer)) return false;
		const joined = this.#joined.get(peer);
		if (typeof joined !== "string") joined.delete(name);
		if (typeof joined === "string" || joined.size === 0) this.#joined.delete(peer);
		this.#emit(name, "leave", peer, "deleted");
		return true;
	}
	/** Removes a peer that closes from every topic. */
	leaveAll(peer) {
		const joined = this.#joined.get(peer);
		if (joined === void 0) return;
		this.#joined.delete(peer);
		const names = typeof joined === "string" ? [joined] : [...joined];
		for (const name of names) this.peers.node?.topics.left(name, peer);
		for (const name of names) this.#removeMember(name, peer);
		for (const name of names) this.#emit(name, "leave", peer, "closed");
	}
	/** Adds a listener. Throws a `TypeError` for an unknown event, and for a listener that is no function. */
	listen(name, how, event, listener) {
		const emitter = this.#emitters.get(name) ?? new TopicEmitter();
		emitter[how](event, listener);
		this.#emitters.set(name, emitter);
	}
	/** Removes a listener. */
	unlisten(name, event, listener) {
		const emitter = this.#emitters.get(name);
		if (emitter === void 0) return;
		emitter.off(event, anyFunction(listener, "listener"));
		this.#deleteUnheard(name, emitter);
	}
	#removeMember(name, peer) {
		const members = this.#members.get(name);
		if (members === void 0 || !members.delete(peer)) return false;
		if (members.size === 0) {
			this.#members.delete(name);
			this.peers.node?.topics.closed(name);
		}
		return true;
	}
	#emit(name, event, peer, reason) {
		const emitter = this.#emitters.get(name);
		if (emitter === void 0) return;
		tell(emitter, event, reason === void 0 ? [peer] : [peer, reason], (error) => this.peers.report(error, peer));
		this.#deleteUnheard(name, emitter);
	}
	/** Deletes an emitter whose last listener was removed. A listener may have replaced the emitter meanwhile. */
	#deleteUnheard(name, emitter) {
		if (emitter.eventNames().length === 0 && this.#emitters.get(name) === emitter) this.#emitters.delete(name);
	}
};
var TopicView = class extends PeerGroup {
	#topics;
	#name;
	constructor(topics, name) {
		super(() => topics.membersOf(name), topics.peers, [name]);
		this.#topics = topics;
		this.#name = name;
	}
	/** Throws if the value is no peer, or a peer that cannot be a member. Returns false if it is closed. */
	#checkMember(peer) {
		if (checkPeer(peer).state === "closed") return false;
		const reason = this.all.whyNoMember(peer);
		if (reason !== void 0) throw new TypeError(reason);
		return true;
	}
	add(peer) {
		if (this.#checkMember(peer)) this.#topics.add(this.#name, peer);
		return this;
	}
	async join(peer, options) {
		this.#checkMember(peer);
		const joined = await this.all.anyNode.topics.join(this.#name, peer, options);
		if (options?.load === void 0 || joined.outcome === "complete") return joined;
		return {
			...joined,
			value: await options.load()
		};
	}
	async present(peer, { presence } = {}, as) {
		if (presence === "leave") this.delete(peer);
		else if (presence !== "set" || this.has(peer)) {
			if (as === void 0 && this.#checkMember(peer)) this.all.anyNode.topics.hide(this.#name, peer);
			await this.join(peer, { as });
		}
		if (presence === "leave" || presence === "set") return {};
		return {
			at: this.all.anyNode.topics.listAt(this.#name),
			outcome: "gap",
			value: {
				id: peer.id,
				members: await this.members()
			}
		};
	}
	async publish(method, params, options) {
		const { around } = this.all.config;
		const { topics } = this.all.anyNode;
		if (around === void 0) return topics.publish(this.#name, method, params, options);
		encodeNotification$1(method, params);
		const call = this.record(method, params, void 0, false);
		return runAround(around, call, () => topics.publish(this.#name, method, call.params, options));
	}
	async read(options) {
		return this.all.anyNode.topics.read(this.#name, options);
	}
	async members(options) {
		return this.all.anyNode.topics.members(this.#name, options);
	}
	watch(listener) {
		return this.all.anyNode.topics.watch(this.#name, anyFunction(listener, "listener"));
	}
	delete(peer) {
		return this.#topics.delete(this.#name, checkPeer(peer));
	}
	on(event, listener) {
		this.#topics.listen(this.#name, "on", event, listener);
		return this;
	}
	once(event, listener) {
		this.#topics.listen(this.#name, "once", event, listener);
		return this;
	}
	off(event, listener) {
		this.#topics.unlisten(this.#name, event, listener);
		return this;
	}
};
var CLOSING = "the server is closing";
var TOKEN_LENGTH = 22;
var ID_LENGTH = 21;
var NodePeer = class extends Peer$1 {
	#node;
	#id;
	constructor(transport, config, hooks, node) {
		super(transport, void 0, {
			config,
			hooks
		});
		this.#node = node;
	}
	get id() {
		return this.#id ??= `${this.#node}.${randomText(ID_LENGTH)}`;
	}
};
var ServerPeers = class {
	#postConfig;
	#server;
	#options;
	#hooks;
	#host;
	#isClosing;
	/** `hash`, `makeNode`: as of a `Platform`. */
	constructor(server, options, hash, makeNode) {
		this.open = /* @__PURE__ */ new Set();
		this.accepted = /* @__PURE__ */ new Set();
		this.topics = new Topics(this);
		this.tally = new Tally();
		this.node = void 0;
		this.#isClosing = false;
		this.hasLeft = false;
		this.#server = server;
		this.#options = options.fleet;
		this.changes = new Changes(this, hash);
		this.config = makeConfig(options.peer);
		this.#postConfig = {
			...this.config,
			use: [...this.config.use, ...postFeatures]
		};
		this.#hooks = this.#makeHooks();
		this.#host = this.#makeHost();
		const { engine } = options.fleet;
		if (engine !== void 0) this.node = makeNode(engine, this.#host);
		const { session, gate, link } = options;
		if (session === void 0 || link !== "packed") return;
		this.sessions = new SessionRegistry({
			limits: endpointLimits(this.config.limits, this.config.bytes),
			...session,
			makeToken: () => {
				const random = randomText(TOKEN_LENGTH);
				return this.node?.tokenOf?.(random) ?? random;
			},
			hash,
			maxSuspendedPerPrincipal: gate.limits.maxSuspendedPerPrincipal,
			maxStoredLength: gate.limits.maxSuspendedBytes
		});
	}
	#makeHooks() {
		return {
			server: this.#server,
			error: (error, peer, call) => this.report(error, peer, call),
			missed: (peer, method) => this.emit("missed", [peer, method], peer),
			answerFor: engineAnswer,
			principalOf: (peer) => this.#principalOf(peer),
			hasErrorListener: () => this.#server.listenerCount("error") > 0,
			ended: (peer) => this.#remove(peer),
			closed: (peer, info) => this.tally.closed(peer, info)
		};
	}
	#makeHost() {
		const { changes, topics, nodes, disconnected } = this.#options;
		return {
			settings: this.config.settings,
			maxReplayLength: this.config.limits.maxUnsentBytes / 4,
			peers: this.open,
			rulesOf: (name) => name.startsWith(RESERVED) ? { log: changes } : topics?.(name),
			membersOf: (name) => this.topics.membersOf(name),
			add: (name, peer) => {
				if (peer.state !== "closed") this.topics.add(name, peer);
			},
			send: (targets, method, text, sendOptions) => sendAll([...targets], method, text, sendOptions),
			accepts,
			nodeMethods: nodes,
			disconnected,
			endSession: (hash, principal) => this.sessions?.endAbandoned(hash, principal),
			changed: (state) => this.emit("engine", [state]),
			gap: (topic, reason, members) => {
				for (const peer of Array.from(members)) connectionOf(peer).transport.reportMissed?.(1);
				this.emit("gap", [topic, reason]);
			},
			report: (error) => this.report(error)
		};
	}
	/** Emits an event of the server. What a listener throws is reported, with `peer`. */
	emit(event, args, peer) {
		tell(this.#server, event, args, (error) => this.report(error, peer));
	}
	/** Emits an error that has no caller. Returns true if a listener got it. */
	report(error, peer, call) {
		return tell(this.#server, "error", [
			error,
			peer,
			call
		]);
	}
	/** Makes the peer of a transport, whose `config` is that of its dialect. If the server is closed, closes it. */
	accept(transport, auth, config = this.config, admission) {
		const peer = this.#make(transport, auth, config);
		if (peer.state !== "closed") {
			this.open.add(peer);
			this.#opened(peer, admission);
		}
		if (this.#isClosing) endPeer(peer, {
			code: GoingAway,
			reason: CLOSING
		});
		return peer;
	}
	/** Makes the peer of one HTTP request. No group has the peer, because nothing can be sent to its client. */
	acceptPost(transport, auth) {
		return this.#make(transport, auth, this.#postConfig);
	}
	#make(transport, auth, config) {
		const hooks = this.#hooks;
		const peer = this.#options.engine === void 0 ? createPeer(transport, config, hooks) : new NodePeer(transport, config, hooks, this.node.id);
		setAuth(peer, auth);
		this.tally.opened(peer);
		startPeer(peer);
		return peer;
	}
	#opened(peer, admission) {
		this.node?.own.opened(peer, admission?.principal ?? this.#principalOf(peer), admission?.since);
	}
	#remove(peer) {
		this.open.delete(peer);
		this.accepted.delete(peer);
		this.topics.leaveAll(peer);
		this.node?.own.closed(peer);
	}
	/** Returns why a peer cannot be a member of a topic; `undefined` if it can. */
	whyNoMember(peer) {
		if (this.open.has(peer)) return void 0;
		return this.#isOwn(peer) ? "a topic takes peers that can be notified, and this one came by HTTP POST" : "a topic takes peers of its own server only";
	}
	/** Returns true if a peer is one of this server, or may be one of a server with the same engine. Also if it is closed. */
	canHave(peer) {
		return this.#isOwn(peer) || this.node?.canHave?.(peer) === true;
	}
	#isOwn(peer) {
		return connectionOf(peer).hooks === this.#hooks;
	}
	/** The node. A server without an engine gets one of its own. */
	get anyNode() {
		if (this.node !== void 0) return this.node;
		const node = this.node = new LocalNode(this.#host);
		if (this.hasLeft) node.close();
		for (const peer of this.open) this.#opened(peer);
		for (const name of this.topics.names) try {
			node.topics.opened(name);
		} catch (error) {
			this.report(error);
		}
		return node;
	}
	/** Returns the name of a peer's principal; `undefined` without the option `principal`. */
	#principalOf(peer) {
		try {
			const { principal } = this.#options;
			return principal && principalName(principal(peer.auth), "principal");
		} catch (error) {
			this.report(error, peer);
			return;
		}
	}
	/** Returns the peers of one principal, on all nodes. */
	principal(name) {
		if (this.#options.principal === void 0) throw new TypeError("`server.principal` requires the option `principal`");
		const { calls, principals } = this.anyNode;
		return principalOf(calls, principals, name);
	}
	/** Returns the counts of all peers, and the present load. */
	stats() {
		const engine = this.node?.stats?.();
		return this.tally.sum({
			peers: this.open.size,
			suspended: this.sessions?.suspended ?? 0,
			suspendedBytes: this.sessions?.stored ?? 0,
			topics: this.topics.size,
			...engine !== void 0 && { engine }
		});
	}
	/** Closes all peers, and each that is made from now on. Resolves when they are closed. */
	async close() {
		this.#isClosing = true;
		const peers = [...this.open];
		for (const peer of peers) endPeer(peer, {
			code: GoingAway,
			reason: CLOSING
		});
		await Promise.all(peers.map((peer) => peer.closed));
	}
	/** Leaves the other nodes. */
	async leave() {
		this.hasLeft = true;
		await this.node?.close();
	}
};
var EVENTS = {
	peer: 0,
	refresh: 0,
	refuse: 0,
	error: 0,
	missed: 0,
	engine: 0,
	gap: 0
};
var Server = class Server extends EventEmitter {
	#peers;
	#entrance;
	#drained;
	#closed;
	/** Use `serve`, or `testServer` of `reciproc/testing`. Throws a `TypeError` for bad options. */
	constructor(options, platform) {
		super();
		const checked = checkServerOptions(options);
		this.#peers = new ServerPeers(this, checked, platform.hash, platform.makeNode);
		this.peers = new PeerGroup(() => this.#peers.open, this.#peers, void 0);
		this.#entrance = new Entrance(this.#peers, checked, platform);
	}
	/** The URL of the server, such as `ws://127.0.0.1:3000/rpc`. Empty with `noServer`, and while the server does not listen. */
	get url() {
		return this.#entrance.gate.url;
	}
	/** Returns the topic of that name. Throws a `TypeError` unless the name is a well-formed string of 1 to 512 bytes of UTF-8. */
	topic(name) {
		return this.#peers.topics.topic(name);
	}
	/**
	* Returns the peers that are in any of these topics, each once: for messages to several topics. Without names, it has no peer. Throws a
	* `TypeError` for more than 256 names, and for what is no name.
	*/
	topics(...names) {
		return this.#peers.topics.union(names);
	}
	/** The names of the topics that have members on this node, for tools. A new array at each use. */
	get topicNames() {
		return [...this.#peers.topics.names];
	}
	/**
	* Makes a peer of a transport, which is open or connects, with this server's handlers. No rule of the handshake applies, and
	* `auth` becomes `peer.auth`, and is not checked. `server.principal` finds the peer by it. If the server is closed, closes the peer with 1001.
	*/
	accept(transport, auth) {
		const peer = this.#peers.accept(transport, auth);
		if (this.#peers.open.has(peer)) this.#peers.accepted.add(peer);
		return peer;
	}
	/**
	* Accepts or refuses an upgrade, for an application that listens itself (`noServer`). Answers and closes a refused socket.
	* Never throws.
	*/
	handleUpgrade(request, socket, head) {
		this.#entrance.gate.handleUpgrade(request, socket, head);
	}
	/**
	* Answers a request by HTTP POST, for an application that routes requests itself: with `noServer`, or beside Express as
	* `app.post("/rpc", (request, response) => server.handleRequest(request, response))`. Ignores `path`. Takes a body that was
	* already read from `request.body`, parsed or as text. Resolves when the response has left or the client has disconnected, and
	* at once if the request was answered already, for frameworks that await a handler. Never rejects.
	*/
	async handleRequest(request, response) {
		await this.#entrance.posts?.handle(request, response, false);
	}
	/** Returns the counts of this server so far, and its present load. Reads the counts of every peer once. */
	stats() {
		return this.#peers.stats();
	}
	/**
	* Shuts down gracefully: refuses new clients with 503, closes each peer with 1001 when none of its handlers runs, and then
	* closes the server. Closes peers in steps, and asks each client to reconnect after a random time. After `timeoutMs`, closes
	* busy peers too. Streams that are read and this side's own calls do not delay a peer. The client of a suspended peer does not
	* get its queued messages. If an option is bad, rejects with a `TypeError` and does nothing. A second call waits for the first.
	*/
	async drain(options) {
		const checked = checkDrain(options);
		await (this.#drained ??= this.#drain(checked));
	}
	async #drain({ timeoutMs, retryMs }) {
		this.#entrance.shut({
			code: GoingAway,
			reason: CLOSING,
			retryMs
		});
		const posts = this.#entrance.posts?.drain(timeoutMs);
		await Promise.all([drainPeers(this.#peers.open, CLOSING, {
			timeoutMs,
			retryMs
		}), posts]);
		await this.close();
	}
	/**
	* Refuses new clients and closes every peer with 1001. Resolves when all peers are closed and, with `port`, the HTTP server
	* has stopped. Cuts a peer that does not answer the close within 5 seconds. Never rejects. A second call waits for the first.
	*/
	close() {
		return this.#closed ??= this.#close();
	}
	async #close() {
		const { gate, posts } = this.#entrance;
		this.#entrance.shut({
			code: GoingAway,
			reason: CLOSING
		});
		posts?.shut(GoingAway, CLOSING);
		await Promise.all([posts?.close(), this.#peers.close()]);
		await gate.close();
		await this.#peers.leave();
	}
	/** Returns `"server"`, for logs. In a message it throws a `TypeError`. */
	toJSON(key) {
		return shownAs("server", "server", "write what is needed of it", key);
	}
	/** Calls `close()`, for `await using`. */
	[Symbol.asyncDispose]() {
		return this.close();
	}
	/** Joins the other nodes and starts listening, for `serve`. Rejects if the broker cannot be reached or the address is in use. @internal */
	async listen() {
		const { gate } = this.#entrance;
		const { node } = this.#peers;
		if (node?.start === void 0) return gate.listen();
		try {
			await node.start(() => gate.listen());
		} catch (error) {
			await this.close();
			throw error;
		}
	}
	/**
	* Returns a peer of any node, by its `id`, which names its node. Needs no round trip, and does not check that there is such a peer.
	*/
	peer(id) {
		return new AddressedPeer(this.#peers.anyNode.calls, id);
	}
	/** Returns all peers of one principal, on all nodes. Throws a `TypeError` without the option `principal`, and for what is no name. */
	principal(name) {
		return this.#peers.principal(name);
	}
	runOnce(context, run) {
		return this.#peers.changes.runOnce(context, run);
	}
	/** The nodes that have the same engine. Without an engine, this server is the only one. */
	get nodes() {
		return this.#peers.anyNode.nodes;
	}
	/** Returns whether this server reaches the others, for monitoring. `ok` is true without an engine. */
	health() {
		return this.#peers.node?.health?.() ?? {
			ok: true,
			engine: "none",
			lagMs: void 0
		};
	}
	static {
		refuseUnknownEvents(Server.prototype, EVENTS);
	}
};
export { settingsOf as $, Inbox as A, secret as At, currentTick as B, waitForResponse as C, mistake as Ct, CONNECT_OPTIONS as D, plainText as Dt, CLOSE_TIMEOUT_MS as E, optional as Et, ROOM_FOR_PONGS as F, onAbort as G, endPeer as H, atEndOfTick as I, refuseUnknownEvents as J, positionOf as K, clearDeadline as L, List as M, utf8Bytes as Mt, MOST_COALESCED as N, EventEmitter as O, positive as Ot, Peer$1 as P, setOwnTimer as Q, clearOwnTimer as R, refuseOptions as S, messageJson as St, EngineError as T, oneOf as Tt, mergeLimits as U, customAlphabet as V, nanoid as W, runReporting as X, replaceTimers as Y, setDeadline as Z, isTls as _, exceeds as _t, NodeTopics as a, ProtocolError$1 as at, parsed as b, isObject as bt, RecentEntries as c, TooLargeError as ct, allFeatures as d, bytes as dt, tell as et, answerRefusal as f, bytesOf as ft, closeWithBye as g, encodeNotification$1 as gt, checkJoin as h, encodeError$1 as ht, NodeTopic as i, ErrorCode$1 as it, LONGEST_DELAY_MS as j, shownAs as jt, Heartbeat as k, receivedError as kt, Replay as l, any as lt, checkHost as m, contract as mt, Gate as n, unlink as nt, OwnPeers as o, RpcError as ot, answerUpgradeRequired as p, checkOptions as pt, rateLimit as q, NO_PEER as r, ConnectionLostError as rt, PAGE as s, TimeoutError as st, Exclusion as t, textOf as tt, Server as u, anyFunction as ut, memberOf as v, expected as vt, withoutUpgrade as w, must as wt, publicationOf as x, isPlain as xt, notificationIn as y, finite as yt, connectionOf as z };
