/** The negotiated link of Node and of tests, whose sockets bound the work of a tick, count their bytes, know what was read, and can ping. */
import type { ReadBudget } from "../base/read-budget.js";
import { addTraffic, type CloseInfo, type Traffic } from "../message/transport.js";
import { NegotiatedLink } from "./link.js";
import type { Attachment } from "./state.js";

/** A negotiated link over sockets of Node. The sockets of a page have nothing of this. */
export class NodeLink extends NegotiatedLink {
  /** The budget of the newest socket. It outlives the socket, because received packs are still processed after its loss. */
  budget: ReadBudget | undefined = undefined;
  /** The traffic of the earlier sockets. */
  #past: Traffic | undefined;

  get traffic(): Traffic | undefined {
    return addTraffic(this.#past, this.socket?.traffic);
  }

  override get canPing(): boolean {
    return super.canPing || this.socket?.ping !== undefined;
  }

  override ping(): void {
    if (this.isReciproc) super.ping();
    else this.socket?.ping?.();
  }

  afterRead(then: () => void): boolean {
    this.flush();
    return this.flowing?.socket.afterRead?.(then) === true;
  }

  override attachSocket(...attached: Parameters<NegotiatedLink["attachSocket"]>): Attachment {
    const [{ budget }] = attached;
    if (this.budget !== undefined && budget !== this.budget) budget?.adopt(this.budget);
    this.budget = budget;
    return super.attachSocket(...attached);
  }

  override detach(end: CloseInfo): void {
    this.#past = this.traffic;
    super.detach(end);
  }

  /** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
  override receivePack(messages: unknown[], from = 0, receiver = this.receiver!): void {
    for (let i = from; i < messages.length; i++) {
      // A message may end the connection.
      if (this.state.kind === "ended" || receiver.ended !== undefined) return;
      if (i > from && this.budget?.isSpent()) return this.budget.defer(() => this.receivePack(messages, i, receiver));
      receiver.dispatch(messages[i]);
    }
  }
}
