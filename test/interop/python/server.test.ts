/** A reciproc client calls a hand-written server in Python, over Debian's `websockets`, and is called by it during a call. */
import { beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../../src/node.js";
import { gate } from "../../support/turns.js";
import { behavesAsServer, type ForeignServer } from "../servers/behaviour.js";
import { Inbox } from "../support/inbox.js";
import { ensurePython, Puppet } from "./puppet.js";

let python: string;
beforeAll(async () => {
  python = await ensurePython();
}, 600_000);

async function start(): Promise<ForeignServer> {
  const port = gate<number>();
  const noted = new Inbox();
  const puppet = new Puppet(python, "server.py", [], (said) => {
    if ("port" in said) port.resolve(said.port);
    else noted.push(said.noted);
  });
  return {
    url: `ws://127.0.0.1:${await port.promise}`,
    gates: { of: (name) => ({ resolve: (value) => puppet.send({ open: name, value }) }) },
    noted,
    cut: () => puppet.send({ cut: true }),
    [Symbol.asyncDispose]: () => puppet[Symbol.asyncDispose](),
  };
}

describe("a Python server", () => {
  behavesAsServer({ start, agrees: false });

  it("calls the client before it answers, by single calls and by a batch", async () => {
    await using server = await start();
    await using peer = await connect(server.url, {
      methods: { confirm: ({ question }) => `yes to ${question}` },
    });
    const asked = ["a", "b", "c"].map((question) => peer.request("ask", { question }));
    expect(await Promise.all(asked)).toEqual(["a", "b", "c"].map((question) => `you said yes to ${question}`));
    expect(await peer.request("twice")).toEqual(["yes to a", "yes to b"]);
  });
});
