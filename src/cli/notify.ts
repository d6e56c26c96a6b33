import { hostAndPort, readUrl } from "./args.js";
import { CONNECTION_HELP } from "./answers.js";
import { ExitCode, type Command } from "./command.js";
import { lost, printFailure } from "./failure.js";
import { readParams } from "./params.js";
import { withPeer } from "./remote.js";

/** The codes of an answered close: 1000, or an empty close frame. The server sends either after it read everything before. */
const CONFIRMED = new Set([1000, 1005]);

/** `reciproc notify`: sends a notification and waits until the server has read it. */
export const notify: Command = {
  name: "notify",
  arguments: ["URL", "METHOD", "[PARAMS]"],
  options: ["json", "timeout", "header", "auth", "answer", "plain"],
  summary: "send a notification",
  help: `Notifies METHOD on the server at URL, and waits for the connection to be closed by both sides,
so that the notification has arrived. Prints nothing: a notification has no response.

  URL     ws:// or wss:// (default ws://)
  PARAMS  a JSON array or object, or - to read it from standard input

  --json                  print a failure as {"error":{...}} in one line
  --timeout MS            how long to wait for the connection (default 10000)
${CONNECTION_HELP}

Exit codes: 0 arrived, 2 no connection or lost before that was certain, 64 wrong use.

  reciproc notify ws://localhost:3000 moved '{"x": 4, "y": 2}'`,

  async run(args, io) {
    const [address, method, text] = args.arguments as [string, string, string | undefined];
    const url = readUrl(address);
    const params = await readParams(text, io.stdin);
    return withPeer(url, args, io, async (peer) => {
      const taken = peer.notify(method, params);
      await peer.close();
      const info = await peer.closed;
      if (taken && CONFIRMED.has(info.code)) return ExitCode.Ok;
      const consequence = taken ? `"${method}" may not have arrived` : `"${method}" was not sent`;
      return printFailure(lost(info, hostAndPort(url), consequence), io, args.json);
    });
  },
};
