import { ClientSession } from "../../../src/link/client.js";
import { SESSION_DEFAULTS } from "../../../src/link/session.js";
import { Sessions, SESSIONS_DEFAULTS } from "../../../src/link/sessions.js";
import { memorySockets } from "../../../src/sockets/memory.js";
import { describeLink } from "../behaviour.js";

describeLink("packed, with a session", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  const limits = { maxMessageBytes: 2 ** 20, ...SESSION_DEFAULTS };
  const sessions = new Sessions({ limits, ...SESSIONS_DEFAULTS, makeToken: () => "t", hash: (token) => `#${token}` });
  const client = new ClientSession(b, limits, { suspended() {}, flows() {}, over: () => false });
  return [sessions.link(a, undefined), client.link];
});
