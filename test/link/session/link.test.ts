import { PEER_LIMITS, TestClient } from "../../support/links.js";
import { Sessions } from "../../../src/server/sessions.js";
import { memorySockets } from "../../../src/sockets/memory.js";
import { describeLink } from "../behaviour.js";
import { KEPT } from "./rig.js";

describeLink("packed, with a session", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  const sessions = new Sessions({ limits: PEER_LIMITS, ...KEPT, makeToken: () => "t", hash: (token) => `#${token}` });
  const client = new TestClient(b, PEER_LIMITS, { over: () => false });
  return [sessions.link(a, undefined), client.link];
});
