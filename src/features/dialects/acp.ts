/** The Agent Client Protocol's spelling. */
import { tokenFrom, type Dialect } from "../../core/dialect.js";
import { isId, member } from "../../core/message.js";
import { progressParams, readProgress } from "./lsp.js";

/** Where params say which reports belong to them, and what an extension of the protocol is called. */
const PROGRESS = "reciproc/progress";

/**
 * `$/cancel_request {requestId}`, always answered. It has no WebSocket subprotocol.
 *
 * The protocol tells progress by notifications of its own, such as `session/update`, and leaves room for extensions: no new
 * member in its params except below `_meta`, no new method except behind an underscore. So `onProgress` asks by
 * `_meta["reciproc/progress"]`, and `progress` reports by `_reciproc/progress {token, value}`: to another reciproc, or to
 * whoever knows of it.
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
