/** A hand-written client in Python, over Debian's `websockets`, calls a reciproc server and is called by it during a call. */
import { beforeAll, describe, expect, it } from "vitest";
import { gate, rejection, type Gate } from "../../support/turns.js";
import { behavesAsClient, meet, type ThirdPartyClient } from "../clients/behaviour.js";
import { Inbox } from "../support/inbox.js";
import { ensurePython, Puppet } from "./puppet.js";

let python: string;
beforeAll(async () => {
  python = await ensurePython();
}, 600_000);

async function open(url: string): Promise<ThirdPartyClient> {
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
    async batch() {
      const members = [
        ["add", [1, 2], true],
        ["note", ["in a batch"], false],
        ["attic", null, true],
      ];
      const [sum, failed] = (await ask({ batch: members })) as [{ result: unknown }, { error: unknown }];
      return [sum.result, failed.error];
    },
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
    await using both = await meet(open);
    const { client, peer } = both;
    const asked = ["a", "b", "c"].map((question) => client.call("ask", { question }));
    expect(await Promise.all(asked)).toEqual(["a", "b", "c"].map((question) => `you said yes to ${question}`));
    expect(await rejection(peer.request("nope"))).toMatchObject({ code: -32601 });
  });
});
