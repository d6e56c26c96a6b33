import { hostAndPort, readUrl } from "./args.js";
import { CONNECTION_HELP } from "./answers.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { failureOf, printFailure, type Failure } from "./failure.js";
import { isWritable, readParams } from "./params.js";
import { withPeer } from "./remote.js";
import { suggestionFor } from "./suggest.js";

const message = "the result is nested too deeply to be written";
const TOO_DEEP: Failure = { exitCode: ExitCode.CallFailed, message, error: { code: "TOO_DEEP", message } };

/** `reciproc call`: calls a method and prints its result. */
export const call: Command = {
  name: "call",
  arguments: ["URL", "METHOD", "[PARAMS]"],
  options: ["json", "timeout", "header", "auth", "answer", "plain"],
  summary: "call a method and print its result",
  help: `Calls METHOD on the server at URL and prints the result as JSON: in one line when piped,
indented on a terminal. An error is printed on standard error.

  URL     ws:// or wss:// (default ws://)
  PARAMS  a JSON array or object, or - to read it from standard input

  --json                  print {"result":...} or {"error":{...}} in one line
  --timeout MS            how long to wait for the connection (default 10000) and for the response (default 60000)
${CONNECTION_HELP}

Exit codes: 0 result, 1 error or timeout, 2 no connection or lost, 64 wrong use.

  reciproc call ws://localhost:3000 add '[1, 2]'`,

  async run(args, io) {
    const [address, method, text] = args.arguments as [string, string, string | undefined];
    const url = readUrl(address);
    const params = await readParams(text, io.stdin);
    return withPeer(url, args, io, async (peer) => {
      let result: unknown;
      try {
        result = await peer.request(method, params);
      } catch (error) {
        const { message: cause, ...failure } = failureOf(error, hostAndPort(url));
        const suggestion = args.json ? "" : await suggestionFor(error, peer, method);
        return printFailure({ ...failure, message: cause + suggestion }, io, args.json);
      }
      return printResult(result, io, args.json);
    });
  },
};

/** Prints the result of a call. Returns the exit code. */
export function printResult(result: unknown, io: Io, json: boolean): number {
  if (!isWritable(result)) return printFailure(TOO_DEEP, io, json);
  if (json) io.stdout.line(JSON.stringify({ result }));
  else io.stdout.json(result);
  return ExitCode.Ok;
}
