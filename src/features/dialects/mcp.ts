/** The dialect of the Model Context Protocol, up to its revision 2025-11-25. */
import { tokenFrom, type Dialect, type ProgressToken } from "../../peer/dialect.js";
import { isId, member } from "../../message/message.js";

/**
 * `notifications/cancelled {requestId, reason?}`, after which no answer comes, and never for `initialize`;
 * `notifications/progress {progressToken, progress, total?, message?}`, asked for by `_meta.progressToken` in params.
 *
 * A handler reports a number, which must grow, or `{ progress, total, message }`; `onProgress` is given such an object.
 * Its subprotocol is `mcp`.
 *
 * Source: Model Context Protocol 2025-11-25, "Cancellation" and "Progress".
 */
export const mcp: Dialect = {
  name: "mcp",
  subprotocol: "mcp",
  cancel: {
    method: "notifications/cancelled",
    params: (requestId, reason) => {
      const message = reason instanceof Error ? reason.message : reason;
      return typeof message === "string" && message !== "" ? { requestId, reason: message } : { requestId };
    },
    idOf(params) {
      const id = member(params, "requestId");
      // Its ids are never null.
      return isId(id) && id !== null ? id : undefined;
    },
    isAnswered: false,
    exempt: ["initialize"],
  },
  progress: {
    method: "notifications/progress",
    tokenIn: (params) => tokenFrom(member(member(params, "_meta"), "progressToken")),
    withToken: (params, progressToken) => ({ ...params, _meta: { ...metaOf(params), progressToken } }),
    params: (progressToken, value) =>
      typeof value === "object" && value !== null ? { ...value, progressToken } : { progressToken, progress: value },
    read(params) {
      const token = tokenFrom(member(params, "progressToken"));
      if (token === undefined) return undefined;
      const { progressToken: _, ...value } = params as { progressToken: ProgressToken };
      return { token, value };
    },
  },
};

function metaOf(params: object | undefined): object | undefined {
  return member(params, "_meta") as object | undefined;
}
