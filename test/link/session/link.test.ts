import { ClientSession } from "../../../src/link/client.js";
import { Sessions } from "../../../src/link/sessions.js";
import { memorySockets } from "../../../src/sockets/memory.js";
import { describeLink } from "../behaviour.js";
import { KEPT, PEER_LIMITS } from "./rig.js";

describeLink("packed, with a session", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  const sessions = new Sessions({ limits: PEER_LIMITS, ...KEPT, makeToken: () => "t", hash: (token) => `#${token}` });
  const client = new ClientSession(b, PEER_LIMITS, { suspended() {}, flows() {}, over: () => false });
  return [sessions.link(a, undefined), client.link];
});
