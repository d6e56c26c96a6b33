/** What tabs add to the messages of the connection that they share. */
import { cutReason, GoingAway, isApplicationCode, Normal } from "../message/close-codes.js";
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

/** What came for a tab: a message to its peer, or the close by the other side. */
export interface TabMessage {
  readonly tab: unknown;
  readonly message: unknown;
  readonly closed: CloseInfo | undefined;
}

/** Reads a value that is no message of JSON-RPC 2.0. Returns `undefined` if it is none of a tab either. */
export function readTabMessage(value: unknown): TabMessage | undefined {
  const [tab, message, closed] = [member(value, "tab"), member(value, "message"), member(value, "closed")];
  if (tab === undefined || (message === undefined && closed === undefined)) return undefined;
  return { tab, message, closed: closed === undefined ? undefined : closeInfoOf(closed) };
}

function closeInfoOf(closed: unknown): CloseInfo {
  const [code, reason] = [member(closed, "code"), member(closed, "reason")];
  return {
    code: code === GoingAway || isApplicationCode(code) ? code : Normal,
    reason: typeof reason === "string" ? cutReason(reason) : "",
  };
}
