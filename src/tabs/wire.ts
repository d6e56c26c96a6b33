/** What tabs add to the messages of the connection that they share. */
import { member } from "../message/message.js";
import type { CloseInfo } from "../message/transport.js";

/** The method of the call that opens the peer of a tab. */
export const METHOD = "$/tab";

/** More than `inTab` adds to a message, in bytes. */
export const HEAD_BYTES = 64;

/** Returns the message in which a message of a tab goes over the connection. */
export function inTab(tab: number, text: string): string {
  return `{"jsonrpc":"2.0","tab":${tab},"message":${text}}`;
}

/** Returns the message that ends the peer of a tab on the other side. */
export function closeOf(tab: number, { code, reason }: CloseInfo): string {
  return JSON.stringify({ jsonrpc: "2.0", tab, closed: { code, reason } });
}

/** A message of a tab: one of its peer, or why that has ended. */
export interface TabMessage {
  readonly tab: unknown;
  readonly message: unknown;
  readonly closed: unknown;
}

/** Reads a value that is no message of JSON-RPC 2.0. Returns `undefined` if it is none of a tab either. */
export function readTabMessage(value: unknown): TabMessage | undefined {
  const [tab, message, closed] = [member(value, "tab"), member(value, "message"), member(value, "closed")];
  return tab === undefined || (message === undefined && closed === undefined) ? undefined : { tab, message, closed };
}
