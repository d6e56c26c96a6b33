/** The dialect of the Agent Client Protocol. */
import { tokenFrom, type Dialect } from "../../peer/dialect.js";
import { isId, member } from "../../message/message.js";
import { progressParams, readProgress } from "./lsp.js";

/** The member of `_meta` that holds the progress token. */
const PROGRESS = "reciproc/progress";

/**
 * `$/cancel_request {requestId}`, always answered. It has no WebSocket subprotocol.
 *
 * The protocol reports progress by its own notifications, such as `session/update`. Extensions may add members only below
 * `_meta`, and methods only with an underscore first. So `onProgress` asks by `_meta["reciproc/progress"]`, and `progress`
 * reports by `_reciproc/progress {token, value}`, to a reciproc peer or another peer that implements this.
 *
 * Source: Agent Client Protocol, "Cancellation" and "Extensibility".
 */
export const acp: Dialect = {
  name: "acp",
  cancel: {
    method: "$/cancel_request",
    params: (requestId) => ({ requestId }),
    idOf(params) {
      const id = member(params, "requestId");
      return isId(id) ? id : undefined;
    },
    isAnswered: true,
  },
  progress: {
    method: "_reciproc/progress",
    tokenIn: (params) => tokenFrom(member(member(params, "_meta"), PROGRESS)),
    withToken: (params, token) => ({
      ...params,
      _meta: { ...(member(params, "_meta") as object | undefined), [PROGRESS]: token },
    }),
    params: progressParams,
    read: readProgress,
  },
};
