/** A short message over the board. */
import { ConnectError, ConnectionLostError, ErrorCode, isApplicationError, RpcError, TimeoutError } from "reciproc";
import { byId } from "./dom.js";

const SHOWN_MS = 6000;
const notice = byId("notice", HTMLElement);
let fading: ReturnType<typeof setTimeout> | undefined;

/** Shows a message for some seconds. */
export function show(text: string): void {
  notice.textContent = text;
  notice.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => (notice.hidden = true), SHOWN_MS);
}

/** Shows an error in words for a visitor. */
export function complain(error: unknown): void {
  show(inWords(error));
}

/** Returns what an error means for a visitor. The texts of errors are for programmers, except those that the demo's server sends. */
export function inWords(error: unknown): string {
  if (isApplicationError(error)) return `${error.message}.`;
  if (error instanceof RpcError)
    return error.code === ErrorCode.InvalidParams
      ? "The server did not accept that: it is too long, or not complete."
      : "The server could not do that.";
  if (error instanceof TimeoutError) return "The server did not answer in time.";
  if (error instanceof ConnectionLostError || error instanceof ConnectError)
    return error instanceof ConnectionLostError && error.outcome === "not-sent"
      ? "That was not sent, because the connection was lost."
      : "The connection was lost before the server answered.";
  return "Something went wrong in this page. Reload it.";
}
