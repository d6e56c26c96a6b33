import { expect, it, vi } from "vitest";
import { z } from "zod";
import { acp, lsp, mcp } from "../../src/node.js";
import { plainPeer } from "../support/network.js";
import { failure, request } from "../support/raw.js";
import { rejection } from "../support/turns.js";
import { target } from "./support/server.js";

it("an id of 1,000,000 characters is echoed once, and one of as many digits or levels is refused with -32600 and id null", async () => {
  await using on = await target();
  using client = await plainPeer(on.url);
  const id = "x".repeat(1_000_000);
  client.webSocket.send(JSON.stringify(request(id, "here")));
  expect((await client.next()).id === id).toBe(true);
  for (const wrong of ["9".repeat(1_000_000), "[".repeat(200_000) + "]".repeat(200_000)]) {
    client.webSocket.send(`{"jsonrpc":"2.0","id":${wrong},"method":"here"}`);
    expect(await client.next()).toEqual(failure(null, -32600, "Invalid Request"));
  }
  expect(on.peers[0]!.stats()).toMatchObject({ malformed: 2, requestsReceived: 1, running: 0 });
});

it.each([lsp, mcp, acp])("a name of the prototype in params pollutes nothing, and returns: $name", async (dialect) => {
  await using on = await target({
    dialect,
    methods: {
      echo(params: any, { progress }: { progress: (value: unknown) => void }) {
        progress(params);
        return params as unknown;
      },
    },
  });
  using client = await plainPeer(on.url);
  const evil = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}';
  const tokens = ',"workDoneToken":"__proto__","_meta":{"__proto__":{"polluted":1},"progressToken":"__proto__"}}';
  client.webSocket.send(`{"jsonrpc":"2.0","id":"__proto__","method":"echo","params":${evil}${tokens}}`);
  const answer = `{"jsonrpc":"2.0","id":"__proto__","result":${evil}${tokens}}`;
  await vi.waitFor(() => expect(client.received).toContain(answer));
  expect(({} as { polluted?: number }).polluted).toBeUndefined();
  expect(on.errors).toEqual([]);
});

it("a value of 200,000 nested arrays is ignored or reported as a token, an id to cancel or an error, and the connection stays", async () => {
  const DEEP = "[".repeat(200_000) + "]".repeat(200_000);
  await using on = await target();
  const arrived = on.next();
  using client = await plainPeer(on.url);
  const call = (await arrived).request("m");
  for (const params of [`{"token":${DEEP}}`, `{"id":${DEEP}}`, `{"token":1,"value":${DEEP}}`]) {
    for (const method of ["$/cancelRequest", "$/progress", "$/enumerator/abort"])
      client.webSocket.send(`{"jsonrpc":"2.0","method":"${method}","params":${params}}`);
  }
  client.webSocket.send(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no","data":${DEEP}}}`);
  expect(await rejection(call)).toMatchObject({ code: 1, message: "no" });
  client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"$/enumerator/next","params":{"token":${DEEP}}}`);
  await vi.waitFor(() => expect(client.received.at(-1)).toContain("-32001"));
  expect(on.errors).toEqual([]);
});

it("answers a call with 500,000 errors in its params by one -32602 that names the first hundred", async () => {
  await using on = await target({ methods: { m: () => 1 }, schemas: { m: z.array(z.string()) } });
  using client = await plainPeer(on.url);
  client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":[${"1,".repeat(499_999)}1]}`);
  const { error } = (await client.next()) as { error: { code: number; data: { issues: { path: number[] }[] } } };
  expect(error.code).toBe(-32602);
  expect(error.data.issues.map(({ path }) => path[0])).toEqual(Array.from({ length: 100 }, (_, i) => i));
});
