/** Runs examples/three-nodes as its README says, with a Redis of its own. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../../src/node.js";
import { Relay } from "../client/relay.js";
import { RedisServer } from "../support/redis.js";

const FOLDER = join(import.meta.dirname, "../../examples/three-nodes");

/** A program of the example, and the lines that it has printed. */
class Program {
  readonly lines: string[] = [];
  readonly #child: ChildProcess;
  /** Called after each line. */
  readonly #waiting = new Set<() => void>();
  readonly ended: Promise<unknown>;

  constructor(file: string, args: string[], env: NodeJS.ProcessEnv = {}) {
    this.#child = spawn(process.execPath, [join(FOLDER, file), ...args], {
      env: { ...process.env, ...env },
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.ended = once(this.#child, "close");
    createInterface(this.#child.stdout!).on("line", (line) => {
      this.lines.push(line);
      for (const check of this.#waiting) check();
    });
  }

  say(line: string): void {
    this.#child.stdin!.write(`${line}\n`);
  }

  /** Resolves with the first line from `from` on that matches. */
  async line(pattern: RegExp, from = 0): Promise<string> {
    const find = (): string | undefined => this.lines.slice(from).find((line) => pattern.test(line));
    if (find() === undefined)
      await new Promise<void>((resolve) => {
        const check = (): void => {
          if (find() === undefined || !this.#waiting.delete(check)) return;
          resolve();
        };
        this.#waiting.add(check);
      });
    return find()!;
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    this.#child.kill(signal);
    await this.ended;
  }
}

/** What the members of the chat have said. */
const heard = (client: Program): string[] => client.lines.filter((line) => line.includes(": "));

describe("the example three-nodes", () => {
  let redis: RedisServer;
  let main: Program;
  let url: string;
  const clients: Program[] = [];

  function chat(name: string): Program {
    const client = new Program("chat.js", [name, url]);
    clients.push(client);
    return client;
  }

  beforeAll(async () => {
    await ensurePackages(FOLDER);
    redis = await RedisServer.create();
    main = new Program("main.js", [], { REDIS_URL: redis.url, PORT: "0" });
    url = (await main.line(/ws:/)).replace(/^.*(ws:\S+).*$/, "$1");
    for (const name of ["n1", "n2", "n3"]) await main.line(new RegExp(`^${name} listens`));
  }, 300_000);
  afterAll(async () => {
    await Promise.all(clients.map((client) => client.end("SIGKILL")));
    await main.end("SIGTERM");
    await redis[Symbol.asyncDispose]();
  });

  it("is small enough to read in ten minutes", async () => {
    const files = ["node.js", "chat.js", "main.js", "balancer.js"];
    const texts = await Promise.all(files.map((file) => readFile(join(FOLDER, file), "utf8")));
    expect(texts.join("").split("\n").length).toBeLessThan(220);
  });

  it("shows all members what is said, and recovers the client of a node that is killed", async () => {
    const [ada, grace] = [chat("ada"), chat("grace")];
    const homes = await Promise.all([ada, grace].map((client) => client.line(/^connected/)));
    expect(homes[0]).not.toBe(homes[1]);

    ada.say("hello");
    grace.say("good morning");
    for (const client of [ada, grace])
      for (const line of ["ada: hello", "grace: good morning"]) await client.line(new RegExp(`^${line}$`));
    expect(heard(ada)).toEqual(heard(grace));

    ada.say("/who");
    expect(await ada.line(/^here/)).toBe("here: ada, grace");
    ada.say("/wave grace");
    expect(await ada.line(/waves too/)).toBe("grace waves too");
    await grace.line(/^ada waves$/);
    ada.say("/wave nina");
    expect(await ada.line(/^failed/)).toBe("failed (404): nina is not here");

    const [before, members] = [ada.lines.length, grace.lines.length];
    ada.say("/kill");
    await main.line(/ended with SIGKILL$/);
    grace.say("are you there?");
    await ada.line(/^grace: are you there\?$/, before);
    expect(await ada.line(/^connected to/, before)).toMatch(/: nothing was missed$/);
    expect(ada.lines.filter((line) => line === "grace: are you there?")).toHaveLength(1);
    await ada.line(/the node is gone/, before);
    // As the README says: it joins, and then leaves where it was.
    await grace.line(/^- ada$/, members);
    expect(grace.lines.slice(members).filter((line) => line.endsWith(" ada"))).toEqual(["+ ada", "- ada"]);
    grace.say("/who");
    expect(await grace.line(/^here/, members)).toBe("here: ada, grace");
    const killed = main.lines.find((line) => line.includes("ended with"))!.slice(0, 2);
    await expect.poll(() => main.lines.filter((line) => line.startsWith(`${killed} listens`))).toHaveLength(2);
  });

  it("resumes the session of a client that lost its socket, on the node that has it", async () => {
    await using relay = await Relay.to(url);
    const methods = { said: () => {}, joined: () => {}, left: () => {} };
    await using client = await connect<any, any>(relay.url, { methods });
    const { node } = (await client.request("join", {})) as { node: string };
    const events: string[] = [];
    for (const event of ["resume", "lost"] as const) client.on(event, () => void events.push(event));
    for (let cuts = 1; cuts <= 3; cuts++) {
      relay.cut();
      await expect.poll(() => events).toEqual(Array.from({ length: cuts }, () => "resume"));
      expect(await client.request("join", {})).toMatchObject({ node });
    }
  });
});
