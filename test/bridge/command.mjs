/** The commands behind the bridge: `node command.mjs NAME [ARGS]`. Their framing is independent of the tested code. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const [name, ...args] = process.argv.slice(2);
const { stdin, stdout, stderr } = process;

const isLsp = args.includes("lsp");
const frame = (text) => (isLsp ? `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}` : `${text}\n`);
const say = (value) => stdout.write(frame(JSON.stringify(value)));
/** Keeps running, for a limited time in case a failed test does not end it. */
const stay = () => setTimeout(() => process.exit(9), 300_000);

const onMessage = (listener) => createInterface(stdin).on("line", listener);

const commands = {
  echo() {
    stdin.pipe(stdout);
  },

  pid() {
    say({ pid: process.pid });
    commands.echo();
  },

  /** Writes COUNT messages of SIZE bytes as fast as they are read. */
  async flood(count, size) {
    const text = "x".repeat(Number(size));
    for (let i = 0; i < Number(count); i++) if (!say({ i, text })) await once(stdout, "drain");
    stderr.write("done\n");
    stdin.destroy();
  },

  /** Reads nothing until SIGUSR2. Then writes the number of bytes read at each message that ends with "end". */
  unreading() {
    stay();
    process.on("SIGUSR2", () => {
      let bytes = 0;
      onMessage((text) => {
        bytes += text.length;
        if (text === '"end"') say({ bytes });
      });
    });
    say({ pid: process.pid });
  },

  /** Writes this number of messages and exits with a code. */
  exit(code, messages) {
    for (let i = 0; i < Number(messages); i++) say(i);
    stdout.write("", () => process.exit(Number(code)));
  },

  /** Writes one message and is killed by a signal. */
  signal(signal) {
    stdout.write(frame("1"), () => process.kill(process.pid, signal));
  },

  /** Ignores the end of its input and SIGTERM. */
  stubborn() {
    process.on("SIGTERM", () => {});
    stay();
    say({ pid: process.pid });
  },

  /** Writes the amount of input at its end, and exits. */
  tidy() {
    let count = 0;
    say({ pid: process.pid });
    onMessage(() => count++);
    stdin.on("end", () => stderr.write(`got ${count}\n`));
  },

  /** Writes a message at the end of its input. At SIGUSR2 writes the amount of input, and exits with 3. */
  thorough() {
    let count = 0;
    stay();
    process.on("SIGUSR2", () => stdout.write(frame(`{"got":${count}}`), () => process.exit(3)));
    say({ pid: process.pid });
    onMessage(() => count++);
    stdin.on("end", () => say("ended"));
  },

  complain() {
    say({ pid: process.pid });
    onMessage((text) => stderr.write(JSON.parse(text)));
  },

  /** Writes bytes, given in hexadecimal, and exits with 0. */
  rawExit(hex) {
    stdout.write(Buffer.from(hex, "hex"));
  },

  /** Answers, breaks the framing, and writes another message when its input ends. */
  incorrigible() {
    say({ pid: process.pid });
    stdin.on("data", () => stdout.write(`${frame("1")}${"ü".repeat(500)}\n`));
    stdin.on("end", () => say("late"));
  },

  unreadable() {
    closeSync(0);
    stay();
    say({ pid: process.pid });
  },

  /** Runs a child process that does the work, as `npx` does. */
  wrapper(...inner) {
    spawn(process.execPath, [process.argv[1], ...inner], { stdio: "inherit" });
  },

  /** Exits with 4 while a child still holds its output. With "apart", the child has its own process group. */
  leave(how) {
    const code = `process.stdout.write(JSON.stringify({ pid: process.pid }) + "\\n"); setTimeout(() => {}, 300_000);`;
    const stubborn = `process.on("SIGTERM", () => {}); ${code}`;
    const helper = spawn(process.execPath, ["-e", stubborn], {
      stdio: ["ignore", "pipe", "inherit"],
      detached: how === "apart",
    });
    // The child reports when it is ready. It holds the inherited standard error.
    helper.stdout.once("data", (text) => {
      writeSync(1, text);
      process.exit(4);
    });
  },
};

await commands[name](...args);
