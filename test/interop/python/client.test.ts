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
  batch(...members: [method: string, params: object | null, isCall: boolean][]): Promise<unknown>;
}

async function open(url: string): Promise<Opened> {
  const opened = gate();
  const closed = gate();
  const pushed = new Inbox();
  const calls: Gate<unknown>[] = [];
  const puppet = new Puppet(python, "client.py", [url], (said) => {
    if ("open" in said) opened.resolve();
    else if ("pushed" in said) pushed.push(said.pushed);
    else if ("closed" in said) closed.resolve();
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
    call: (method, params) => ask({ call: method, params }),
    batch: (...members) => ask({ batch: members }),
    notify: (method, params) => puppet.send({ notify: method, params }),
    pushed,
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
});
