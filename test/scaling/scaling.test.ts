/** Runs the examples of docs/SCALING.md over a Redis of this test. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { clean, examplesOf, extract, Running } from "../readme/examples.js";
import { RedisServer } from "../support/redis.js";

const printing = (await examplesOf("docs/SCALING.md")).filter(({ output }) => output !== undefined);

describe("the examples of SCALING.md", () => {
  let redis: RedisServer;
  let running: Running[] = [];

  beforeAll(async () => {
    redis = await RedisServer.create();
    await extract("docs/SCALING.md");
    process.env["REDIS_URL"] = redis.url;
    process.env["PORT"] = "0";
  }, 300_000);
  afterEach(async () => {
    await Promise.all(running.map((program) => program.stop()));
    running = [];
  });
  afterAll(async () => {
    await clean();
    await redis[Symbol.asyncDispose]();
  });

  function run(name: string, ...args: string[]): Running {
    const program = new Running(name, args);
    running.push(program);
    return program;
  }

  it("show the members of one node what is said on another", async () => {
    const [first, second] = [run("node.js"), run("node.js")];
    const urls = await Promise.all([first, second].map((node) => node.line(/listening/)));
    const [ada, grace] = ["ada", "grace"].map((name, i) => run("member.js", urls[i]!.split(" ").at(-1)!, name));
    for (const member of [ada!, grace!]) await member.line(/^load the room/);
    // The one that came first has both; the other has those since it joined.
    const [one, own, other] = await Promise.race([
      ada!.line(/^grace: hello$/).then(() => [ada!, /^ada: hello$/, grace!] as const),
      grace!.line(/^ada: hello$/).then(() => [grace!, /^grace: hello$/, ada!] as const),
    ]);
    await one.line(own);
    expect(one.lines.filter((line) => line.endsWith("hello"))).toHaveLength(2);
    await other.line(/: hello$/);
  });

  it("list a member once whose node was killed", async () => {
    const [first, second] = [run("node.js"), run("node.js")];
    const [url, other] = await Promise.all(
      [first, second].map(async (node) => (await node.line(/listening/)).split(" ").at(-1)!),
    );
    await run("member.js", url!, "ada").line(/^load the room/);
    await first.stop("SIGKILL");
    // The lease of the killed node has not ended: for the broker, the member is there twice.
    const again = await run("member.js", other!, "ada").line(/^load the room/);
    // Members of earlier tests may be there too.
    expect(again.match(/'ada'/g)).toEqual(["'ada'"]);
  });

  it.each(printing)("print what the page shows: $name", async ({ name, output }) => {
    const program = run(name);
    const exit = await program.exited;
    expect(program.lines).toEqual(output);
    expect(exit).toEqual([0, null]);
  });
});
