/** The Agent Client Protocol's spelling. */
import { member, type Dialect } from "../../core/dialect.js";
import { isId } from "../../core/message.js";
import { lsp } from "./lsp.js";

/**
 * `$/cancel_request {requestId}`, always answered. The protocol has no progress of its own; it is asked for and reported as
 * in `lsp`.
 *
 * Source: Agent Client Protocol, "Cancellation".
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
  progress: lsp.progress,
};
