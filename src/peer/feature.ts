/**
 * The interface between the core and its features. A feature makes a part for a connection when that first needs one, so an idle
 * connection has none. The core calls the functions of the parts, and does not know what they do.
 */
import type { MessageText } from "../message/codec.js";
import type { Calls } from "./caller.js";
import type { CallOptions, LiveOptions } from "../contract/contract.js";
import type { CoreDialect } from "./dialect.js";
import { mistake } from "../message/errors.js";
import type { Flow } from "./flow.js";
import type { AbortCause, IncomingCall, Slot } from "./incoming-call.js";
import type { Id, NotificationMessage, RequestMessage } from "../message/message.js";
import type { OutgoingCall } from "./outgoing-call.js";
import type { AnyIterable } from "../base/promises.js";
import type { fitSchemas } from "../contract/schema.js";
import type { SendHandle } from "../message/transport.js";

/** What the option `use` adds to a peer: the exports `streams`, `progress`, `batches`, `live`, `renewal`, `schemas` and `compat`, or a feature of an application. */
export interface Feature<P extends FeaturePart = FeaturePart> {
  /** Its name. A feature replaces an earlier one of the same name. */
  readonly name: string;
  /** Returns the methods whose messages its part takes before any handler. The default dialect has no `progress`. */
  methods(dialect: CoreDialect): readonly string[];
  /** Makes its part of one connection, when that first needs one. `peer.feature` returns it. */
  create(connection: FeatureConnection): P;
  /** The class of the flow, if it is another than that of the core. @internal */
  readonly Flow?: typeof Flow;
  /** Checks the option `schemas`, and returns the check of params by it. @internal */
  readonly fitSchemas?: typeof fitSchemas;
}

/** What a feature may do on its connection. */
export interface FeatureConnection {
  /** The peer of the connection, which handlers get as `context.peer`. */
  readonly peer: object;
  readonly outgoing: {
    /** As `peer.request`, past `around` and before what `onOpen` delays. Rejects when the connection is lost or closes. */
    requestDirectly(method: string, params?: unknown, options?: CallOptions): Promise<unknown>;
  };
}

/** A feature on one connection. Each function is called at its moment, if it is there. What `receive` throws is emitted as `error`. */
export interface FeaturePart {
  /**
   * Takes a message with one of the feature's methods. Returns false if the message is about nothing here: then a handler gets it. Such
   * messages wait for no handler, and count against no limit but `maxMessagesPerSecond`. A request is answered by `slot.put`, with a
   * text of `encodeResult` or `encodeError`.
   */
  receive?(message: RequestMessage | NotificationMessage, slot: Slot): boolean;
  /** The connection has a socket again. */
  resumed?(): void;
  /** The connection has ended: with the session lost, or for good. */
  end?(reason: unknown): void;
}

/** What the part of a feature of this package may have besides. */
export interface OwnPart extends FeaturePart {
  /**
   * Takes what JSON-RPC 2.0 does not know as one message, such as an array, and an error with id null that answers none of this side's.
   * Returns false if it has no use for it.
   */
  receiveUnknown?(value: unknown, slot: Slot): boolean;
  /** Takes a control frame that the link of a client does not know. */
  control?(frame: object): void;
  /** The other side has cancelled its calls of that id. Their responses may have crossed the cancel. */
  cancelled?(id: Id, cause: AbortCause): void;
  /** Encodes the params of a request, or a result. Returns `undefined` if they hold nothing of this feature. */
  encode?(call: IncomingCall | OutgoingCall, content: unknown): MessageText | undefined;
  /**
   * Returns the text to send for a queued message, now that the other side is known to understand the dialect. Returns `undefined` if the
   * message stays as it is, or was cancelled here.
   */
  rewriteQueued?(text: MessageText, handle: SendHandle): MessageText | undefined;
}

/**
 * The parts behind members, options and results of the public API, by the name of their feature. The core knows these names only there,
 * because the error for a missing feature names the export.
 */
export interface NamedParts {
  renewal: {
    /** As `peer.reauthenticate`. */
    reauthenticate(options?: CallOptions): Promise<void>;
  };
  live: {
    /**
     * Checks the options of a notification. Returns its send handle, if only the newest is queued, and whether it may be sent at the time of
     * the call.
     */
    check(method: string, options: LiveOptions): { handle: SendHandle | undefined; maySend(): boolean };
  };
  batches: {
    /** Starts a batch. Its functions throw, or reject, once it was sent. `send` sends what was collected and still waits, in one array. */
    batch(): Calls & { send(): void };
  };
  progress: {
    /** Returns params that ask for reports of a call. Throws for params that cannot. */
    ask(call: OutgoingCall, params: unknown): unknown;
    /** Returns the function by which a handler reports. It does nothing if the caller did not ask for reports. */
    reporterOf(call: IncomingCall): (value: unknown) => void;
  };
  streams: {
    /**
     * Serves a stream that is the whole result of a call. The promise gives what makes, right before it is sent, the JSON that
     * stands for the stream. If the caller no longer waits, stops the stream and rejects.
     */
    serve(source: AnyIterable, call: IncomingCall): Promise<() => MessageText>;
    /** Calls a method, and reads its result as a stream. */
    stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown>;
    /** Reads a stream that came in a message. */
    iterate(stream: unknown): AsyncIterable<unknown>;
    /** Makes a stream that a message can contain. */
    offer(source: unknown): object;
  };
}

type Args<K extends keyof OwnPart> = Parameters<Required<OwnPart>[K]>;
type Returned<K extends keyof OwnPart> = ReturnType<Required<OwnPart>[K]>;
type Called = (...args: unknown[]) => unknown;

/** Returns the error of what needs a feature that the peer does not use. */
export function notInUse(name: string): TypeError {
  return mistake(`this needs the option \`use: [${name}]\`, with the export \`${name}\``);
}

/** The parts of one connection. */
export class Parts {
  readonly #parts: ReadonlyMap<string, OwnPart>;

  constructor(use: readonly Feature[], connection: FeatureConnection) {
    this.#parts = new Map(use.map((feature) => [feature.name, feature.create(connection)]));
  }

  /** Returns the part of a feature. Throws a `TypeError` that names the feature if the peer does not use it. */
  get<K extends keyof NamedParts>(name: K): NamedParts[K];
  get(name: string): FeaturePart;
  get(name: string): unknown {
    const part = this.#parts.get(name);
    if (part === undefined) throw notInUse(name);
    return part;
  }

  /** Calls a function of each part that has it, until one returns true or a text. Returns that. */
  first<K extends "receive" | "receiveUnknown" | "encode" | "rewriteQueued">(
    name: K,
    ...args: Args<K>
  ): Returned<K> | undefined {
    for (const part of this.#parts.values()) {
      const result = (part[name] as Called | undefined)?.apply(part, args);
      if (result) return result as Returned<K>;
    }
    return undefined;
  }

  /** Calls a function of each part that has it, whatever it returns. */
  each<K extends "control" | "cancelled" | "resumed" | "end">(name: K, ...args: Args<K>): void {
    for (const part of this.#parts.values()) (part[name] as Called | undefined)?.apply(part, args);
  }
}
