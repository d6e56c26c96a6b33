/** The dialect of the Language Server Protocol, which vscode-jsonrpc and StreamJsonRpc share. */
import { lspCancel, tokenFrom, type Dialect, type ProgressToken } from "../../peer/dialect.js";
import { member } from "../../message/message.js";

/** Returns the params of a report. */
export function progressParams(token: ProgressToken, value: unknown): object {
  return { token, value: value ?? null };
}

/** Reads the params of a report, which StreamJsonRpc sends by position. Returns `undefined` if they hold no token. */
export function readProgress(params: unknown): { token: ProgressToken; value: unknown } | undefined {
  const token = tokenFrom(member(params, "token", 0));
  return token === undefined ? undefined : { token, value: member(params, "value", 1) };
}

/**
 * `$/cancelRequest {id}`, always answered; `$/progress {token, value}`, asked for by `workDoneToken` (or
 * `partialResultToken`) in params by name. The default dialect of `reciproc.v1` links.
 *
 * Source: Language Server Protocol 3.17, "Cancellation Support" and "Progress Support".
 */
export const lsp: Dialect = {
  name: "lsp",
  readsNullParams: true,
  cancel: lspCancel,
  progress: {
    method: "$/progress",
    tokenIn: (params) => tokenFrom(member(params, "workDoneToken")) ?? tokenFrom(member(params, "partialResultToken")),
    withToken: (params, workDoneToken) => ({ ...params, workDoneToken }),
    params: progressParams,
    read: readProgress,
  },
};
