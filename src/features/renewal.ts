/** A fresh `auth` on an open connection. */
import type { Connection } from "../peer/connection.js";
import type { CallOptions } from "../contract/contract.js";
import { ConnectionLostError, mistake } from "../message/errors.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { OutgoingCall } from "../peer/outgoing-call.js";

/** The calls of `reauthenticate` on one connection, which share one exchange of frames. */
class Renewal implements OwnPart {
  readonly #connection: Connection;
  readonly #calls = new Set<OutgoingCall>();
  /** The newest exchange. `isSent`: its `auth` is sent, and the reply has not come. Its calls may have timed out. */
  #exchange = { isSent: false };

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Sends a fresh `auth` as a call, which has no message of its own. It settles as any other call. */
  async reauthenticate(options?: CallOptions): Promise<void> {
    const send = (_text: unknown, handle: unknown): boolean => {
      this.#add(handle as OutgoingCall);
      return true;
    };
    // No name that a contract would have: it may check the results of a method of that name.
    await this.#connection.outgoing.requestDirectly("$/reauthenticate", undefined, options, { send });
  }

  #add(call: OutgoingCall): void {
    const calls = this.#calls;
    const { isSent } = this.#exchange;
    call.sent = isSent;
    call.whenSettled(() => calls.delete(call));
    calls.add(call);
    if (this.#connection.transport.delegate?.freshAuth === undefined) this.#reject();
    else if (calls.size === 1 && !isSent) void this.#renew();
  }

  resumed(): void {
    void this.#renew();
  }

  /** Sends a fresh `auth` if a call waits for it. While there is no socket, the call waits: the next server may ask for `auth`. */
  async #renew(): Promise<void> {
    const { transport, flow } = this.#connection;
    const calls = this.#calls;
    const exchange = { isSent: false };
    this.#exchange = exchange;
    if (calls.size === 0 || flow.isDown) return;
    try {
      const auth = await transport.delegate!.freshAuth!();
      // Another exchange may have begun, and no call may wait any more.
      if (this.#exchange !== exchange || calls.size === 0) return;
      if (auth === undefined) return this.#reject();
      exchange.isSent = transport.sendControl!(`{"auth":${auth}}`);
      if (exchange.isSent) for (const call of calls) call.sent = true;
    } catch (error) {
      if (this.#exchange === exchange) this.#reject(error);
    }
  }

  #reject(reason: unknown = mistake("`reauthenticate` requires `auth` of client and server")): void {
    for (const { id } of this.#calls) this.#connection.outgoing.fail(id, reason);
  }

  control(frame: object): void {
    // The server asks. What the function `auth` throws has no other caller. After a loss, the client sends a fresh one by itself. A call
    // that is pending does so too.
    if ("auth" in frame && this.#calls.size === 0)
      this.reauthenticate().catch((error: unknown) => {
        if (!(error instanceof ConnectionLostError)) this.#connection.report(error, undefined, "auth");
      });
    if (!("authenticated" in frame)) return;
    this.#exchange.isSent = false;
    const { outgoing, incoming } = this.#connection;
    for (const { id } of this.#calls) outgoing.settle("response", { id, result: null }, incoming);
  }
}

/** Sends a fresh `auth` on the open connection of a client: by `peer.reauthenticate`, and when the server asks for it. */
export const renewal: Feature<Renewal> = {
  name: "renewal",
  methods: () => [],
  create: (connection) => new Renewal(connection as Connection),
};
