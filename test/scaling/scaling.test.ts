/** Over a Redis: the examples of docs/SCALING.md, and examples/three-nodes. */
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../support/connect.js";
import { Relay } from "../support/relay.js";
import { clean, examplesOf, extract, Running } from "../readme/examples.js";
import { commandAt, RedisServer } from "../support/redis.js";

const SCALING = "docs/SCALING.md";
const FOLDER = join(import.meta.dirname, "../../examples/three-nodes");

let redis: RedisServer;
let running: Running[] = [];

beforeAll(async () => {
  redis = await RedisServer.create();
  await extract(SCALING);
  await ensurePackages(FOLDER);
  process.env["REDIS_URL"] = redis.url;
  process.env["PORT"] = "0";
});
afterEach(async () => {
  await Promise.all(running.map((program) => program.stop()));
  running = [];
});
afterAll(async () => {
  await clean();
  await redis[Symbol.asyncDispose]();
});

/** Runs a program until the end of the test. */
function run(name: string, ...args: string[]): Running {
  const program = new Running(name, args);
  running.push(program);
  return program;
}

const printing = (await examplesOf(SCALING)).filter(({ output }) => output !== undefined);

/** Starts a node. Returns it with its URL. */
async function start(): Promise<[node: Running, url: string]> {
  const node = run("node.js");
  return [node, (await node.line(/listening/)).split(" ").at(-1)!];
}

const member = (url: string, name: string): Running => run("member.js", url, name);

describe("the examples of SCALING.md", () => {
  it("show the members of one node who is on another, and what is said there", async () => {
    const [[, url], [, other]] = await Promise.all([start(), start()]);
    const ada = member(url, "ada");
    await ada.line(/^ada: hello 1$/);
    const grace = member(other, "grace");
    await ada.line(/^grace joined$/);
    for (const one of [ada, grace]) for (const line of [/^ada: hello/, /^grace: hello 1$/]) await one.line(line);
    await grace.stop("SIGINT");
    await ada.line(/^grace left$/);
  });

  it("lose nothing while a node is replaced", async () => {
    const [old, url] = await start();
    await using relay = await Relay.to(url);
    const ada = member(relay.url, "ada");
    await ada.line(/^ada: hello 2$/);
    [, relay.target] = await start();
    expect(await old.stop()).toBe(0);
    await ada.line(/^nothing was missed/);
    await ada.line(/^ada: hello/, ada.lines.length);
    const said = ada.lines.filter((line) => line.startsWith("ada: "));
    expect(said).toEqual(said.map((_line, i) => `ada: hello ${i + 1}`));
  });

  it("list a member once whose node was killed, and leave nothing in Redis without a time to live", async () => {
    const [[first, url], [second, other]] = await Promise.all([start(), start()]);
    await member(url, "ada").line(/^ada: hello 1$/);
    await member(other, "bob").line(/^load the room/);
    await first.stop("SIGKILL");
    // The lease of the killed node has not ended: for the other one, ada is there twice.
    const again = member(other, "ada");
    expect(await again.line(/^load the room/)).toMatch(/ \[ 'ada', 'bob' \]$/);
    await again.line(/^ada: hello 1$/);
    await second.stop("SIGKILL");
    const keys = await commandAt<string[]>(redis.url, ["KEYS", "*"]);
    const left = await Promise.all(keys.map((key) => commandAt<number>(redis.url, ["PTTL", key])));
    expect([keys.length > 1, left.filter((ms) => ms === -1)]).toEqual([true, []]);
  });

  it.each(printing)("print what the page shows: $name", async ({ name, output }) => {
    const program = run(name);
    expect([await program.exited, program.lines]).toEqual([[0, null], output]);
  });
});

/** What the members of the chat have said. */
const heard = (client: Running): string[] => client.lines.filter((line) => line.includes(": "));

describe("the example three-nodes", () => {
  let main: Running;
  let url: string;

  const chat = (name: string): Running => run(join(FOLDER, "chat.js"), name, url);

  beforeEach(async () => {
    main = run(join(FOLDER, "main.js"));
    url = (await main.line(/ws:/)).replace(/^.*(ws:\S+).*$/, "$1");
    for (const name of ["n1", "n2", "n3"]) await main.line(new RegExp(`^${name} listens`));
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
    const methods = { said: () => {}, member: () => {} };
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
