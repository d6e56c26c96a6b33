/** The entry for every runtime. No module that it imports needs Node. */
export { connect, open, type ConnectOptions, type ReconnectOptions } from "./connect.js";
export type { Attempt } from "./client/credentials.js";
export { pair } from "./pair.js";
export {
  follow,
  type FollowedTopic,
  type FollowedValue,
  type FollowOptions,
  type FollowParams,
  type Reducers,
  type TopicState,
} from "./client/follow.js";
export { mutation, type KeyedName, type Mutation, type MutationParams, type MutationState } from "./client/mutation.js";
export {
  presence,
  type MemberState,
  type Other,
  type Presence,
  type PresenceOptions,
  type PresenceState,
  type PresentParams,
} from "./client/presence.js";
export { bytes, bytesOf, readBytes, type Bytes, type BytesCodec, type BytesSource } from "./message/bytes.js";
export { Peer } from "./peer/peer.js";
export type { FailedCall } from "./peer/hooks.js";
export type { AnyPeer, Around, Batch, Call, Context, Options, PeerEvents, PeerOptions } from "./peer/peer.js";
export type { Caller } from "./peer/caller.js";
export {
  contract,
  type ContractEntry,
  type ContractOf,
  type ContractOptions,
  type MethodsOf,
  type SchemaContract,
} from "./contract/checks.js";
export type {
  AnyMethods,
  ApiOf,
  AppTypes,
  CallArgs,
  CallOptions,
  CallRate,
  CheckedMethod,
  Contract,
  Handler,
  Handlers,
  Item,
  Joined,
  LiveOptions,
  MemberChange,
  MethodLimits,
  MethodMeta,
  NotifyName,
  Params,
  People,
  PresenceParams,
  Progress,
  Remote,
  Result,
  Stream,
  Streamed,
  StreamName,
  WebStream,
} from "./contract/contract.js";
export type { Carried, Jsonify, NotJson } from "./message/jsonify.js";
export {
  ConnectError,
  ConnectionLostError,
  ErrorCode,
  isApplicationError,
  ProtocolError,
  RpcError,
  TimeoutError,
  TooLargeError,
  type Outcome,
} from "./message/errors.js";
export type { PeerLimits } from "./message/limits.js";
export type { PeerStats } from "./peer/stats.js";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./contract/schema.js";
export type { CancelDialect, Dialect, ProgressDialect, ProgressToken } from "./peer/dialect.js";
export { batches } from "./features/batches.js";
export { live } from "./features/live.js";
export { compat } from "./features/compat.js";
export { renewal } from "./features/renewal.js";
export { progress } from "./features/progress.js";
export { schemas } from "./features/schemas.js";
export { streams } from "./features/streams.js";
export type { Feature, FeatureConnection, FeaturePart } from "./peer/feature.js";
export type { Slot } from "./peer/incoming-call.js";
export { acp } from "./features/dialects/acp.js";
export { lsp } from "./features/dialects/lsp.js";
export { mcp } from "./features/dialects/mcp.js";
export type { CloseInfo, Receiver, Transport } from "./message/transport.js";
export { encodeError, encodeNotification, encodeRequest, encodeResult } from "./message/text.js";
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
} from "./message/message.js";
