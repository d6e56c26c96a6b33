/**
 * Worlds in which one rule is broken. A variant replaces what the world gives to its peers, and what it gets from them: the functions
 * of the client, of the server and of its topics, the function `authenticate`, the methods of the stores, and the frames that the proxy
 * forwards.
 */
import type { AnyPeer, CallOptions, ConnectionLostError, NotifyOptions, Server } from "../../src/node.js";
import type { StoreMisuse } from "../support/stores.js";
import type { Account, Credentials } from "./credentials.js";
import type { Side } from "./proxy.js";
import { closeFrame, textFrame, type Unit } from "./units.js";
import type { WireLine } from "./wiretap.js";

export interface Variant {
  client?(client: AnyPeer): AnyPeer;
  server?(server: Server): Server;
  authenticate?(authenticate: Credentials["authenticate"]): Credentials["authenticate"];
  /** Returns what the proxy forwards for a unit to that side. */
  bend?(unit: Unit, to: Side, line: WireLine): Buffer;
  /** How the application of the stores is wrong. */
  readonly misuse?: StoreMisuse;
}

/** Returns an object with some functions replaced. The other functions get the object itself as `this`. */
function withFunctions<T extends object>(one: T, functions: Partial<Record<keyof T, unknown>>): T {
  return new Proxy(one, {
    get(target, name) {
      if (Object.hasOwn(functions, name)) return functions[name as keyof T];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

function topics(
  notify: (topic: ReturnType<Server["topic"]>, ...args: [string, any, NotifyOptions<any>?]) => boolean | void,
): Variant {
  return {
    server: (server) =>
      withFunctions(server, {
        topic: (name: string) => {
          const topic = server.topic(name);
          return withFunctions(topic, {
            notify: (...args: [string, any, NotifyOptions<any>?]) => notify(topic, ...args),
          });
        },
      }),
  };
}

function calls(
  request: (client: AnyPeer, method: string, params: any, options?: CallOptions) => Promise<unknown>,
): Variant {
  return {
    client: (client) =>
      withFunctions(client, {
        request: (method: string, params: unknown, options?: CallOptions) => request(client, method, params, options),
      }),
  };
}

function renewals(reauthenticate: (client: AnyPeer) => Promise<void>): Variant {
  return { client: (client) => withFunctions(client, { reauthenticate: () => reauthenticate(client) }) };
}

function listeners(name: string, wrap: (listener: (...args: any[]) => void) => (...args: any[]) => void): Variant {
  return {
    server: (server) => {
      const on = (event: string, listener: (...args: any[]) => void): Server =>
        server.on(event as "peer", event === name ? wrap(listener) : listener);
      return withFunctions(server, { on });
    },
  };
}

function frames(to: Side, bend: (unit: Unit, line: WireLine) => Buffer | undefined): Variant {
  return { bend: (unit, side, line) => (side === to ? bend(unit, line) : undefined) ?? unit.bytes };
}

/** How frames of a server and of a client begin. */
const BINARY = 0x82;
const CLOSE = 0x88;
const NOTHING = Buffer.alloc(0);

function missedOf({ control }: Unit): number | undefined {
  return control?.["missed"] as number | undefined;
}

/** Bends each report of dropped messages. An empty pack takes its place in the count of frames. */
function reports(bend: (count: number, line: WireLine) => string | undefined): Variant {
  return frames("client", (unit, line) => {
    const count = missedOf(unit);
    const text = count === undefined ? undefined : bend(count, line);
    return text === undefined ? undefined : textFrame(text, false);
  });
}

/** The broken rules, beside those that `test/session/faults.ts` breaks in an endpoint. */
export const VARIANTS: Readonly<Record<string, () => Variant>> = {
  "bytes arrive unchanged": () =>
    frames("client", ({ bytes }) => {
      if (bytes[0] !== BINARY) return undefined;
      const bent = Buffer.from(bytes);
      bent[bent.length - 1]! ^= 1;
      return bent;
    }),
  "bytes are copied before their sender may change them": () =>
    calls(async (client, ...args) => {
      await Promise.resolve();
      return client.request(...args);
    }),
  "a broadcast ends no session": () =>
    topics((topic, method, params, options) => topic.notify(method, params, { ...options, whenSlow: "close" })),
  "broadcasts take no room from other messages": () =>
    topics((topic, method, params) => {
      for (const peer of topic) peer.notify(method, params);
    }),
  "no report counts a dropped message twice": () => reports((count) => JSON.stringify({ missed: count + 1 })),
  "a dropped message is reported to the client": () => reports(() => "[]"),
  "the report of dropped messages is replayed": () =>
    reports((_count, { isResumed }) => (isResumed ? "[]" : undefined)),
  "the newest message of a key is the last that arrives": () => {
    const last = new Map<string, unknown>();
    return topics((topic, method, params, options = {}) => {
      const { latest } = options;
      topic.notify(method, params, options);
      if (latest === undefined) return;
      if (last.has(latest)) topic.notify(method, last.get(latest), options);
      last.set(latest, params);
    });
  },
  "a client that closes before `resumed` ends the session at the server": () =>
    frames("server", ({ bytes, control }, { state }) =>
      state === "asking" && (bytes[0] === CLOSE || (control !== undefined && "bye" in control)) ? NOTHING : undefined,
    ),
  "`reauthenticate` replaces the auth": () => {
    let first: Account | undefined;
    return {
      authenticate:
        (authenticate) =>
        async (...given) =>
          (first ??= await authenticate(...given)),
    };
  },
  "`reauthenticate` resolves when its `auth` is accepted": () =>
    renewals((client) => {
      client.reauthenticate().catch(() => {});
      return Promise.resolve();
    }),
  "`reauthenticate` tells whether its `auth` was sent": () =>
    renewals((client) =>
      client.reauthenticate().catch((error: ConnectionLostError) => {
        throw Object.create(error, { outcome: { value: "not-sent" } });
      }),
    ),
  "a client that is refused does not stay": () => ({
    authenticate: (authenticate) => {
      let accepted: Account | undefined;
      return async (...given) => (accepted = (await authenticate(...given)) ?? accepted);
    },
  }),
  "a refusal of `reauthenticate` is 4401": () =>
    frames("client", ({ bytes, control }) => {
      if (control !== undefined && "bye" in control) return NOTHING;
      return bytes[0] === CLOSE && bytes.readUInt16BE(2) === 4401 ? closeFrame(4403, false) : undefined;
    }),
  "a resumed peer has a new auth": () => ({
    authenticate: (authenticate) => {
      const accounts = new Map<string, Account>();
      return async (...given) => {
        const account = await authenticate(...given);
        if (account === undefined) return undefined;
        const { name } = account;
        if (!accounts.has(name)) accounts.set(name, account);
        return accounts.get(name);
      };
    },
  }),
  "`refresh` is emitted once": () =>
    listeners("refresh", (listener) => (...args) => {
      listener(...args);
      listener(...args);
    }),
  "a call that may have run is not made again": () =>
    calls((client, method, params, options) => {
      const call = client.request(method, params, options);
      if (options?.retry === undefined) return call;
      return call.catch((error: ConnectionLostError) => {
        if (error.outcome !== "unknown") throw error;
        return client.request(method, params);
      });
    }),
  "a call that was not sent is made again": () =>
    calls((client, method, params, { retry: _retry, ...options } = {}) => client.request(method, params, options)),
  "a broadcast that is dropped is counted": () => listeners("missed", () => () => {}),
  "a followed topic has the state of the server": () => ({ misuse: "loads before the join" }),
  "a store becomes current again": () => ({ misuse: "refuses to join again" }),
  "no list has a member that has left": () => ({ misuse: "lists a member that has left" }),
  "a change runs once": () => ({ misuse: "replaces the key" }),
};
