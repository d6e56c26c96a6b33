/** The entry for every runtime. No module that it imports needs Node. */
export { connect, open, type ConnectOptions, type ReconnectOptions } from "./connect.js";
export type { Attempt } from "./client/credentials.js";
export { pair } from "./pair.js";
export { bytes, bytesOf, type Bytes, type BytesCodec, type BytesSource } from "./core/bytes.js";
export { Peer } from "./peer/peer.js";
export type { FailedCall } from "./core/hooks.js";
export type { AnyPeer, Around, Batch, Call, Context, Options, PeerEvents, PeerOptions } from "./peer/peer.js";
export type { Caller } from "./peer/caller.js";
export {
  contract,
  type ContractEntry,
  type ContractOf,
  type ContractOptions,
  type MethodsOf,
  type SchemaContract,
} from "./core/checks.js";
export type {
  AnyMethods,
  ApiOf,
  AppTypes,
  CallArgs,
  CallOptions,
  CheckedMethod,
  Contract,
  Handler,
  Handlers,
  Item,
  LiveOptions,
  NotifyName,
  Params,
  Progress,
  Remote,
  Result,
  Stream,
  Streamed,
  StreamName,
  WebStream,
} from "./core/contract.js";
export type { Carried, Jsonify, NotJson } from "./core/jsonify.js";
export {
  ConnectError,
  ConnectionLostError,
  ErrorCode,
  ProtocolError,
  RpcError,
  TimeoutError,
  TooLargeError,
  type Outcome,
} from "./core/errors.js";
export type { PeerLimits } from "./core/limits.js";
export type { PeerStats } from "./core/stats.js";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./core/schema.js";
export type { CancelDialect, Dialect, ProgressDialect, ProgressToken } from "./core/dialect.js";
export { batches } from "./features/batches.js";
export { live } from "./features/live.js";
export { compat } from "./features/compat.js";
export { renewal } from "./features/renewal.js";
export { progress } from "./features/progress.js";
export { schemas } from "./features/schemas.js";
export { streams } from "./features/streams.js";
export type { Feature, FeatureConnection, FeaturePart } from "./core/feature.js";
export type { Slot } from "./core/incoming-call.js";
export { acp } from "./features/dialects/acp.js";
export { lsp } from "./features/dialects/lsp.js";
export { mcp } from "./features/dialects/mcp.js";
export type { CloseInfo, Receiver, Transport } from "./core/transport.js";
export { encodeError, encodeNotification, encodeRequest, encodeResult } from "./core/text.js";
export {
  classify,
  isInternalMethod,
  isNotification,
  isRequest,
  isResponse,
  JSONRPC_VERSION,
  parseMessage,
  type ErrorMessage,
  type ErrorObject,
  type Id,
  type Kind,
  type Message,
  type NotificationMessage,
  type RequestMessage,
  type ResponseMessage,
  type ResultMessage,
  type StructuredParams,
} from "./core/message.js";
