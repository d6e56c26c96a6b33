import { plain } from "../../src/link/plain.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { describeLink } from "./behaviour.js";

describeLink("plain", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  return [plain(a), plain(b)];
});
