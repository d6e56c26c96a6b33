import { encodeNotification, encodeRequest, type Call, type CloseInfo, type Peer } from "../node.js";
import { hostAndPort, readUrl } from "./args.js";
import { CONNECTION_HELP } from "./answers.js";
import { ExitCode, type Command } from "./command.js";
import { lost, printFailure } from "./failure.js";
import { describe, type Output } from "./output.js";
import { withPeer } from "./remote.js";

/** Normal closure, going away, and a close frame without a code. */
const NORMAL = new Set([1000, 1001, 1005]);

/** `reciproc listen`: prints what the other side sends. */
export const listen: Command = {
  name: "listen",
  arguments: ["URL"],
  options: ["json", "once", "timeout", "header", "auth", "answer", "plain"],
  summary: "print what the other side sends",
  help: `Connects to URL and prints each incoming notification and request, one JSON-RPC object a line.
Requests are answered as --answer says, others with -32601 (Method not found).

Runs until Ctrl-C. Reconnects if the connection is lost or the server restarts, and reports that on standard error.
Messages sent in between are missing, unless the server queued them for this client. The command ends if the server
closes with 1000 or 44xx, or refuses the client (401, 403).

  URL  ws:// or wss:// (default ws://)

  --once                  do not reconnect
  --json                  no colour, and print a failure as {"error":{...}} in one line
  --timeout MS            how long to wait for the connection (default 10000)
${CONNECTION_HELP}

Exit codes: 0 closed by you or by the server, 2 no connection or lost, 64 wrong use.

  reciproc listen ws://localhost:3000`,

  run(args, io) {
    const url = readUrl(args.arguments[0]!);
    const { stdout, stderr } = io;
    const show = (text: string): void => (args.json ? stdout.line(text) : stdout.jsonText(text));
    return withPeer(
      url,
      args,
      io,
      async (peer) => {
        peer.on("error", (error) => stderr.alarm(`error: ${describe(error)}`));
        if (stderr.isTerminal) stderr.line(`connected to ${hostAndPort(url)}; Ctrl-C ends`);
        reportLosses(peer, hostAndPort(url), stderr);
        const info = await Promise.race<CloseInfo | void>([
          peer.closed,
          io.untilSignal().then(() => {}),
          stdout.broken,
        ]);
        if (info === undefined || NORMAL.has(info.code)) return ExitCode.Ok;
        return printFailure(lost(info, hostAndPort(url)), io, args.json);
      },
      {
        reconnect: !args.once,
        // `fallback` is not called for methods of the reserved `rpc.` space.
        around: (call, next) => {
          if (call.direction === "incoming") show(textOf(call));
          return next();
        },
      },
    );
  },
};

/** Reports each lost connection, so that a reader of the output knows where messages are missing. */
export function reportLosses(peer: Peer, where: string, stderr: Pick<Output, "alarm" | "line">): void {
  let isMissing = false;
  peer.on("suspend", () => {
    isMissing = false;
    stderr.alarm(`lost the connection to ${where}; trying again`);
  });
  peer.on("lost", () => (isMissing = true));
  peer.on("resume", () => {
    const consequence = isMissing ? "what was sent meanwhile is missing" : "nothing is missing";
    stderr.line(`connected to ${where} again; ${consequence}`);
  });
}

/** Returns the message that made a call. */
export function textOf({ id, method, params }: Call): string {
  return id === undefined
    ? encodeNotification(method, params as object | undefined)
    : encodeRequest(id, method, params as object | undefined);
}
