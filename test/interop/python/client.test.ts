/** A hand-written client in Python, over Debian's `websockets`, calls a reciproc server and is called by it during a call. */
import { beforeAll, describe, expect, it } from "vitest";
import { gate, rejection, type Gate } from "../../support/turns.js";
import { behavesAsClient, type ThirdPartyClient } from "../clients/behaviour.js";
import { Inbox } from "../support/inbox.js";
import { ATTIC, startService } from "../support/service.js";
import { ensurePython, Puppet } from "./puppet.js";

let python: string;
beforeAll(async () => {
  python = await ensurePython();
}, 600_000);

interface Opened extends ThirdPartyClient {
  /** Sends a command to the program. */
  command(what: object): void;
  batch(...members: [method: string, params: object | null, isCall: boolean][]): Promise<unknown>;
  /** Errors with id null. */
  readonly refused: Inbox;
  readonly hanging: Inbox;
  readonly closed: Promise<[code: number, reason: string]>;
}

async function open(url: string): Promise<Opened> {
  const opened = gate();
  const closed = gate<[number, string]>();
  const pushed = new Inbox();
  const refused = new Inbox();
  const hanging = new Inbox();
  const calls: Gate<unknown>[] = [];
  const puppet = new Puppet(python, "client.py", [url], (said) => {
    if ("open" in said) opened.resolve();
    else if ("pushed" in said) pushed.push(said.pushed);
    else if ("refused" in said) refused.push(said.refused);
    else if ("hanging" in said) hanging.push(true);
    else if ("closed" in said) closed.resolve(said.closed);
    else if ("error" in said) calls[said.settled]!.reject(said.error);
    else calls[said.settled]!.resolve(said.result);
  });
  await opened.promise;
  const ask = (what: object): Promise<unknown> => {
    const call = gate<unknown>();
    puppet.send({ id: calls.push(call) - 1, ...what });
    return call.promise;
  };
  return {
    command: (what) => puppet.send(what),
    call: (method, params) => ask({ call: method, params }),
    batch: (...members) => ask({ batch: members }),
    notify: (method, params) => puppet.send({ notify: method, params }),
    pushed,
    refused,
    hanging,
    closed: closed.promise,
    async close() {
      puppet.send({ close: true });
      await closed.promise;
      await puppet[Symbol.asyncDispose]();
    },
  };
}

describe("a Python client", () => {
  behavesAsClient({ open, ids: (ids) => expect(ids).toEqual([0, 1, 2]), pending: "rejected" });

  it("answers a call that the server makes during its own call", async () => {
    await using service = await startService();
    const client = await open(service.url);
    const asked = ["a", "b", "c"].map((question) => client.call("ask", { question }));
    expect(await Promise.all(asked)).toEqual(["a", "b", "c"].map((question) => `you said yes to ${question}`));
    const peer = await service.peers.next();
    expect(await rejection(peer.request("nope"))).toMatchObject({ code: -32601 });
    await client.close();
  });

  it("sends a batch and gets one array for it, in its order", async () => {
    await using service = await startService();
    const client = await open(service.url);
    const batch = client.batch(
      ["wait", ["slow"], true],
      ["note", ["noted"], false],
      ["attic", null, true],
      ["nothing", null, true],
    );
    expect(await service.noted.next()).toEqual(["noted"]);
    service.gateOf("slow").resolve("at last");
    expect(await batch).toEqual([
      { jsonrpc: "2.0", id: 0, result: "at last" },
      { jsonrpc: "2.0", id: 1, error: ATTIC },
      { jsonrpc: "2.0", id: 2, result: null },
    ]);
    await client.close();
  });

  it("answers a batch of the server", async () => {
    await using service = await startService();
    const client = await open(service.url);
    const batch = (await service.peers.next()).batch();
    const calls = [
      batch.request("confirm", { question: "a" }),
      batch.request("nope"),
      batch.request("confirm", { question: "b" }),
    ];
    batch.notify("tick", ["in a batch"]);
    batch.send();
    expect(await calls[0]).toBe("yes to a");
    expect(await rejection(calls[1]!)).toMatchObject({ code: -32601 });
    expect(await calls[2]).toBe("yes to b");
    expect(await client.pushed.next()).toEqual(["tick", ["in a batch"]]);
    await client.close();
  });

  it("gets a parse error for invalid JSON, and may send binary frames", async () => {
    await using service = await startService();
    const client = await open(service.url);
    client.command({ raw: "{bad json" });
    expect(await client.refused.next()).toEqual({ code: -32700, message: "Parse error" });
    client.command({ raw: "[]" });
    expect(await client.refused.next()).toEqual({ code: -32600, message: "Invalid Request" });
    client.command({ raw: '{"jsonrpc":"2.0","method":"note","params":["é"]}', binary: true });
    expect(await service.noted.next()).toEqual(["é"]);
    await client.close();
  });

  it("fails the server's call when it disconnects during it, and gets the reason when the server closes", async () => {
    await using service = await startService();
    const leaving = await open(service.url);
    const lost = rejection((await service.peers.next()).request("hang"));
    await leaving.hanging.next();
    await leaving.close();
    expect(await lost).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    const left = await open(service.url);
    await (await service.peers.next()).close(4321, "grüß Gott");
    expect(await left.closed).toEqual([4321, "grüß Gott"]);
    await left.close();
  });
});
