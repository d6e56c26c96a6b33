// Contracts of schemas: both sides infer their types from them.
import { type } from "arktype";
import { connect, contract, serve, type AnyPeer, type ContractOf, type Peer } from "reciproc/node";
import * as v from "valibot";
import { z } from "zod";
import { has, is, type Equal } from "./api.js";

const api = contract({
  add: { params: z.tuple([z.number(), z.number()]), result: z.number() },
  at: { params: z.object({ day: z.string().transform((day) => new Date(day)) }), result: z.date() },
  copy: { params: z.object({ files: z.number() }), result: z.null(), progress: z.object({ done: z.number() }) },
  tail: { params: z.object({ file: z.string() }).optional(), stream: z.object({ line: z.string(), at: z.date() }) },
  moved: { params: z.object({ x: z.number() }) },
  ping: { result: z.string() },
});
const theirs = contract({
  toast: { params: z.object({ text: z.string() }) },
  confirm: { params: z.tuple([z.string()]), result: z.boolean() },
});
type Api = ContractOf<typeof api>;

const server = await serve({
  port: 0,
  contract: api,
  remote: theirs,
  check: "both",
  methods: {
    add: ([a, b]) => a + b,
    at: ({ day }) => (is<Equal<typeof day, Date>>(), day),
    async copy({ files }, { progress, peer, signal, server }) {
      is<Equal<typeof files, number>>();
      progress({ done: 1 });
      const sure = await peer.request("confirm", ["?"], { signal });
      is<Equal<typeof sure, boolean>>();
      server.peers.notify("toast", { text: "" });
      return null;
    },
    *tail(p) {
      is<Equal<typeof p, { file: string } | undefined>>();
      yield { line: "", at: new Date() };
    },
    moved: ({ x }, { peer }) => void peer.notify("toast", { text: String(x) }),
    ping: () => "pong",
  },
});
const peer = await connect(server.url, {
  contract: theirs,
  remote: api,
  methods: { toast: ({ text }) => void text.length, confirm: ([text]) => text === "" },
});
has<number>()(await peer.request("add", [1, 2]));
has<string>()(await peer.remote.at({ day: "x" }));
await peer.request("copy", { files: 1 }, { onProgress: (value) => is<Equal<typeof value, { done: number }>>() });
for await (const v of peer.stream("tail")) is<Equal<typeof v, { line: string; at: string }>>();
peer.notify("moved", { x: 1 });
const same: Peer<ContractOf<typeof theirs>, Api> = peer;
const only = await connect("ws://x", { remote: api });
has<number>()(await only.remote.add([1, 2]));
// A peer of a contract is one of a hand-written interface with the same methods, and goes where any peer does.
const adder: Peer<any, { add(params: [a: number, b: number]): number }> = peer;
function use(any: AnyPeer, untyped: Peer): void {
  any.notify("x");
  untyped.notify("x");
}
use(peer, only);
// Validators whose types differ, in one contract.
const mixed = contract({
  valibot: { params: v.object({ at: v.pipe(v.string(), v.transform(Number)) }), result: v.array(v.string()) },
  arktype: { params: type({ at: "string" }), stream: type("number"), progress: type({ "done?": "number" }) },
});
await serve({
  port: 0,
  contract: mixed,
  methods: {
    valibot: ({ at: n }) => (is<Equal<typeof n, number>>(), [String(n)]),
    async *arktype({ at: text }, { progress }) {
      is<Equal<typeof text, string>>();
      progress({ done: 1 });
      yield text.length;
    },
  },
});

// What must not compile.
// @ts-expect-error wrong params
await peer.request("add", [1, "2"]);
await serve({
  port: 0,
  contract: theirs,
  // @ts-expect-error confirm is missing
  methods: { toast: () => {} },
});
// @ts-expect-error methods missing
await connect("", { contract: theirs });
contract({
  // @ts-expect-error params are a string
  a: { params: z.string() },
});
await serve({
  port: 0,
  contract: api,
  methods: {
    ...({} as any),
    copy: async (_p, { progress }) => {
      // @ts-expect-error wrong progress
      progress({ don: 1 });
      return null;
    },
  },
});
// @ts-expect-error a check that does not exist
await connect("ws://x", { remote: api, check: "results" });
// @ts-expect-error the schema of params takes a string
await peer.request("at", { day: new Date() });

// A test server infers from contracts too, and its methods and the mocks of its clients may lack entries.
import { testServer } from "reciproc/testing";
const kit = testServer({ contract: api, remote: theirs, check: "both", methods: { add: ([a, b]) => a + b } });
const tested = await kit.connect(kit.server.url, {
  contract: theirs,
  check: "both",
  methods: { confirm: ([q]) => q === "" },
});
// @ts-expect-error another contract than the test server's
await kit.connect("ws://localhost", { contract: api });
is<Equal<typeof tested, Peer<ContractOf<typeof theirs>, Api>>>();
export { adder, same };
