/** The error codes of JSON-RPC 2.0, section 5.1, and the codes of this package. A bundle holds the codes that it uses. */

/** The frame is not one JSON text. */
export const ParseError = -32700;
/** The JSON is not a request, a notification, a response or a batch of them. */
export const InvalidRequest = -32600;
/** No handler serves that method. */
export const MethodNotFound = -32601;
/** The params do not fit the method's schema. */
export const InvalidParams = -32602;
/** The handler failed, or its result has no JSON form. The details stay on its side. */
export const InternalError = -32603;
/** The caller cancelled the request, and its handler ended without a result (Language Server Protocol). */
export const RequestCancelled = -32800;
/** The stream that is read does not exist, or no longer exists (StreamJsonRpc). */
export const NoSuchStream = -32001;
/** The peer has as many subscriptions open as `maxPerPeer` allows. */
export const TooManySubscriptions = -32006;
/** The message, sent by HTTP POST, is longer than `maxMessageBytes`, or a stream has more bytes than `readBytes` accepts. */
export const RequestTooLarge = -32007;
/** The reply would exceed `maxReplyBytes`. */
export const ResponseTooLarge = -32008;
/** More requests are in flight than `maxInFlight` allows. */
export const Busy = -32009;
/** The batch has more entries than `maxBatchEntries`. */
export const BatchTooLarge = -32010;
/** The handler failed with an `EngineError`: its server cannot reach the broker of its fleet. The details stay on its side. */
export const TryAgainLater = -32011;
/** A limit of the method refused the call, which did not run. The data has `retryMs`. */
export const TooManyCalls = -32012;
/** The handler took longer than the `timeoutMs` of its method. It may have run in part. */
export const HandlerTimeout = -32013;
