import { RpcError, type Peer } from "../node.js";
import { CONNECTION_HELP } from "./answers.js";
import { printResult } from "./call.js";
import { hostAndPort, readUrl, UsageError } from "./args.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { failureOf, lost, printFailure } from "./failure.js";
import { Lines } from "./lines.js";
import { reportLosses, textOf } from "./listen.js";
import { describe } from "./output.js";
import { parseJson, parseParams } from "./params.js";
import { withPeer } from "./remote.js";
import { suggestionFor } from "./suggest.js";

const HELP = `METHOD [PARAMS]    call a method, and print its result
!METHOD [PARAMS]   send a notification
#N JSON            answer question N of the server
#N ! MESSAGE       refuse it, with an error
.help, .exit       show this, end`;

/** `reciproc connect`: calls, notifies and answers, line by line. */
export const connect: Command = {
  name: "connect",
  arguments: ["URL"],
  options: ["timeout", "header", "auth", "answer", "plain"],
  summary: "call, notify and answer, line by line",
  help: `Connects to URL, and reads one line at a time from standard input, with a history on a terminal:

  ${HELP.replaceAll("\n", "\n  ")}

Prints results, and what the server sends: notifications and requests, those that wait for your answer with a number.
Reconnects if the connection is lost. Ends at the end of the input, when all calls are answered.

  URL  ws:// or wss:// (default ws://)

  --timeout MS            how long to wait for the connection (default 10000) and for each response (default 60000)
${CONNECTION_HELP}

Exit codes: 0 ended by you or by the server, 2 no connection or lost, 64 wrong use.

  reciproc connect ws://localhost:3000`,

  run(args, io) {
    const url = readUrl(args.arguments[0]!);
    const session = new Session(io, hostAndPort(url));
    return withPeer(url, args, io, (peer) => session.run(peer), {
      reconnect: true,
      around: (call, next) => {
        if (call.direction === "outgoing") return next();
        const { id, method, params, context } = call;
        // A person is not asked for what `--answer` answers, nor for methods of the reserved `rpc.` space.
        const isAnswered = args.answers.has(method) || method.startsWith("rpc.");
        if (id !== undefined && !isAnswered) return session.ask(method, params, context.signal);
        session.show(() => io.stdout.jsonText(textOf(call)));
        return next();
      },
    });
  },
};

/** A request of the server that waits for the person's answer. */
interface Question {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: RpcError) => void;
}

/** What a person types, and what is shown to them. */
class Session {
  readonly #io: Io;
  readonly #where: string;
  /** Reads once there is a connection. */
  #lines: Lines | undefined;
  /** The requests of the server that wait for an answer, by number. */
  readonly #questions = new Map<number, Question>();
  #lastQuestion = 0;
  /** Whether no question is answered any more, and whether nothing is shown any more. */
  #isEnding = false;
  #isOver = false;
  /** The calls that are not answered. */
  readonly #calls = new Set<Promise<void>>();

  constructor(io: Io, where: string) {
    this.#io = io;
    this.#where = where;
  }

  /** Takes lines until the input ends or the connection has ended for good. Returns the exit code. */
  async run(peer: Peer): Promise<number> {
    const { stderr } = this.#io;
    const above = {
      alarm: (text: string) => this.show(() => stderr.alarm(text)),
      line: (text: string) => this.show(() => stderr.line(text)),
    };
    reportLosses(peer, this.#where, above);
    peer.on("error", (error) => above.alarm(`error: ${describe(error)}`));
    if (this.#io.terminal !== undefined) stderr.line(`connected to ${this.#where}; .help explains, Ctrl-D ends`);
    const lines = (this.#lines = new Lines(this.#io.stdin, this.#io.terminal));
    const typed = lines.each((line) => this.#take(line.trim(), peer)).then((isPiped) => this.#end(isPiped));
    const ended = await Promise.race([typed, peer.closed, this.#io.untilSignal(), this.#io.stdout.broken]);
    this.#isOver = true;
    lines.close();
    if (typeof ended !== "object" || !("code" in ended)) return ExitCode.Ok;
    return ended.code === 1000 ? ExitCode.Ok : printFailure(lost(ended, this.#where), this.#io, false);
  }

  /** Waits for the calls if a pipe has ended, which answers no more questions. */
  async #end(isPiped: boolean): Promise<void> {
    this.#isEnding = true;
    for (const { reject } of this.#questions.values()) reject(UNANSWERED);
    if (isPiped) await Promise.all(this.#calls);
  }

  /** Shows a request of the server, until its `signal` aborts. Returns the promise of the person's answer. */
  async ask(method: string, params: unknown, signal: AbortSignal): Promise<unknown> {
    if (this.#isEnding) throw UNANSWERED;
    const number = ++this.#lastQuestion;
    signal.addEventListener("abort", () => {
      if (this.#questions.delete(number) && !this.#isOver)
        this.show(() => this.#io.stdout.line(`#${number} is withdrawn`));
    });
    // The server chooses the name, which may have line breaks.
    const name = /^\S+$/.test(method) ? method : JSON.stringify(method);
    this.show(() => this.#io.stdout.line(`#${number} ${name} ${JSON.stringify(params) ?? ""}`.trimEnd()));
    return new Promise((resolve, reject) => this.#questions.set(number, { resolve, reject }));
  }

  /** Prints by `print`, above what is being typed. */
  show(print: () => void): void {
    if (this.#lines === undefined) print();
    else this.#lines.above(print);
  }

  #take(line: string, peer: Peer): void {
    const { stdout, stderr } = this.#io;
    try {
      const [, number, isRefusal, answer = ""] = /^#(\d+)\s*(!?)\s*(.*)$/s.exec(line) ?? [];
      const [, isNotification, method = "", params = ""] = /^(!?)\s*(\S+)\s*(.*)$/s.exec(line) ?? [];
      if (number !== undefined) this.#answer(Number(number), answer, isRefusal === "!");
      else if (line === ".help") stdout.line(HELP);
      else if (line === ".exit") this.#lines!.close();
      else if (line === "!") throw new UsageError("! needs a METHOD");
      else if (isNotification) peer.notify(method, paramsIn(params));
      else if (line !== "") this.#call(peer, method, paramsIn(params));
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      stderr.alarm(error.message);
      if (error.excerpt !== undefined) stderr.line(error.excerpt);
    }
  }

  #answer(number: number, text: string, isRefusal: boolean): void {
    const question = this.#questions.get(number);
    if (question === undefined) throw new UsageError(`no question #${number} waits for an answer`);
    if (isRefusal) question.reject(new RpcError(REFUSED, text || "refused"));
    else question.resolve(parseJson(text, `the answer to #${number}`));
    this.#questions.delete(number);
  }

  #call(peer: Peer, method: string, params: object | undefined): void {
    const fail = async (error: unknown): Promise<void> => {
      const { message, ...failure } = failureOf(error, this.#where);
      const suggestion = await suggestionFor(error, peer, method);
      if (this.#isOver) return;
      this.show(() => printFailure({ ...failure, message: message + suggestion }, this.#io, false));
    };
    const call = peer
      .request(method, params)
      .then((result) => this.show(() => printResult(result, this.#io, false)), fail)
      .finally(() => this.#calls.delete(call));
    this.#calls.add(call);
  }
}

/** The code of an error by which a person refuses. */
const REFUSED = 1;
const UNANSWERED = new RpcError(REFUSED, "the input of the person has ended");

function paramsIn(text: string): object | undefined {
  return text === "" ? undefined : parseParams(text, "PARAMS");
}
