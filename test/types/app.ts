// The types that an application gives to what the library carries for it: `peer.auth`, `peer.data`, the `as` of members, and what its
// wrappers read and add.
import { connect, contract, limits, pair, serve, type Around, type Peer, type ServerAround } from "reciproc/node";
import { z } from "zod";
import { is, type Equal } from "./api.js";

declare module "reciproc" {
  interface AppTypes {
    data: { room?: string };
    as: { name: string; since: Date };
    meta: { role?: "viewer" | "editor"; tags?: readonly string[] };
    context: { account: Account };
  }
}
interface Account {
  user: string;
}
declare function find(token: unknown): Account | undefined;
interface Api {
  who(): string;
}

// `auth`: the result of `authenticate`, without the values that refuse.
const inferred = await serve({
  noServer: true,
  authenticate: (_request, auth) => find(auth),
  principal: ({ user }) => user,
  fallback: (_params, { peer }) => peer.auth.user,
  methods: { who: (_params, { peer }) => peer.auth.user },
});
inferred.on("refresh", (peer, old) => {
  is<Equal<typeof peer.auth, Account>>();
  is<Equal<typeof old, Account>>();
});
await serve({
  noServer: true,
  contract: contract({ who: { result: z.string() } }),
  authenticate: ({ headers }) => find(headers.authorization) ?? false,
  methods: { who: (_params, { peer }) => (is<Equal<typeof peer.auth, Account>>(), peer.auth.user) },
});
await serve<Api, {}, Account>({
  noServer: true,
  methods: { who: (_params, { peer }) => peer.auth.user },
  authenticate: (_request, auth) => find(auth),
});
await serve({
  noServer: true,
  authenticate: (_request, auth) => find(auth),
  // @ts-expect-error no such member in what `authenticate` returns
  methods: { who: (_params, { peer }) => peer.auth.name },
});
const open = await serve({ noServer: true, methods: {} });
open.on("peer", ({ auth }) => is<Equal<typeof auth, unknown>>());

// `data`: what the application declares, on both sides.
const client: Peer = await connect("ws://x");
is<Equal<typeof client.data, { room?: string }>>();
inferred.on("peer", (peer) => {
  is<Equal<typeof peer.data, { room?: string }>>();
  peer.data.room = "den";
  // @ts-expect-error the object itself stays
  peer.data = {};
  // @ts-expect-error only the library sets it
  peer.auth = { user: "ada" };
  // @ts-expect-error a member of `as` is missing
  void inferred.topic("den").join(peer, { as: { name: "Ada" } });
  void inferred.topic("den").join(peer, { as: { name: "Ada", since: new Date() } });
});

// `as`: what the application declares, as it arrives by way of JSON.
for (const { as } of await inferred.topic("den").members()) is<Equal<typeof as, { name: string; since: string }>>();
inferred.topic("den").watch((_event, { as }) => is<Equal<typeof as.since, string>>());

// `meta` and `context`: what contracts say to wrappers, and what wrappers add for handlers.
const api = contract({
  who: { result: z.string(), meta: { role: "editor", tags: ["a"], limits: { maxRunning: 1 } } },
  free: {},
});
const roles: ServerAround = (call, next) => {
  if (call.direction === "outgoing") return (is<Equal<typeof call.context, undefined>>(), next());
  is<Equal<NonNullable<typeof call.meta>["role"], "viewer" | "editor" | undefined>>();
  call.context.account = { user: "ada" };
  return next();
};
await serve({
  noServer: true,
  contract: api,
  around: [limits(), roles, limits<Api>({ who: { timeoutMs: 5 } }), (_call, next) => next()],
  methods: {
    who: (_params, { account, peer }) => (
      is<Equal<typeof account, Account>>(),
      is<Equal<typeof peer.auth, unknown>>(),
      ""
    ),
    free() {},
  },
});
const ofPeer: Around = (call, next) => (is<Equal<typeof call.peer.data, { room?: string }>>(), next());
pair({ around: [ofPeer, roles] }, { around: limits() });
