/** An engine around another one, which does some operations in a wrong way: what a mutant is made of. */
import type {
  Channel,
  Engine,
  EngineConnection,
  EngineError,
  EngineHost,
  EngineLeases,
  EngineLog,
  EngineRoster,
} from "../../../src/fleet/engine.js";

type Operation<F extends (...args: any[]) => unknown> = (pass: F, ...args: Parameters<F>) => ReturnType<F>;

/** What is done in a wrong way. Each function gets the right one first. */
export interface Bends {
  readonly received?: Operation<EngineHost["received"]>;
  readonly up?: Operation<EngineHost["up"]>;
  readonly down?: Operation<(error: EngineError) => void>;
  readonly heard?: Operation<EngineHost["heard"]>;
  readonly subscribe?: Operation<EngineConnection["subscribe"]>;
  readonly send?: Operation<EngineConnection["send"]>;
  readonly append?: Operation<EngineLog["append"]>;
  readonly read?: Operation<EngineLog["read"]>;
  readonly put?: Operation<EngineRoster["put"]>;
  readonly enter?: Operation<EngineLeases["enter"]>;
  readonly beat?: Operation<EngineLeases["beat"]>;
}

/** Returns an engine whose connections do what `make` returns. `connection` is the right one, and is complete when an operation runs. */
export function bend(engine: Engine, make: (node: string, getConnection: () => EngineConnection) => Bends): Engine {
  return {
    name: engine.name,
    settings: engine.settings,
    createConnection: (node, host) => {
      const bends = make(node, () => inner);
      const inner = engine.createConnection(node, bendHost(host, bends));
      return bendConnection(inner, bends);
    },
  };
}

/** Returns the operation that a bend changes, or the right one. */
function bent<F extends (...args: any[]) => any>(change: Operation<F> | undefined, pass: F): F {
  return (change === undefined ? pass : (...args: Parameters<F>) => change(pass, ...args)) as F;
}

function bendHost(host: EngineHost, bends: Bends): EngineHost {
  return {
    received: bent(bends.received, (channel: Channel, frame: string) => host.received(channel, frame)),
    up: bent(bends.up, () => host.up()),
    down: bent(bends.down, (error: EngineError) => host.down(error)),
    heard: bent(bends.heard, (channels: Parameters<EngineHost["heard"]>[0]) => host.heard(channels)),
  };
}

function bendConnection(inner: EngineConnection, bends: Bends): EngineConnection {
  const { log, roster } = inner;
  return {
    open: () => inner.open(),
    close: () => inner.close(),
    reconnect: (reason) => inner.reconnect(reason),
    subscribe: bent(bends.subscribe, (channel: Channel) => inner.subscribe(channel)),
    unsubscribe: (channel) => inner.unsubscribe(channel),
    send: bent(bends.send, (channel: Channel, frame: string) => inner.send(channel, frame)),
    log: log && {
      append: bent(bends.append, (...args: Parameters<EngineLog["append"]>) => log.append(...args)),
      read: bent(bends.read, (...args: Parameters<EngineLog["read"]>) => log.read(...args)),
    },
    roster: roster && {
      put: bent(bends.put, (...args: Parameters<EngineRoster["put"]>) => roster.put(...args)),
      list: (topic) => roster.list(topic),
      enter: bent(bends.enter, (...args: Parameters<EngineLeases["enter"]>) => roster.enter(...args)),
      beat: bent(bends.beat, (...args: Parameters<EngineLeases["beat"]>) => roster.beat(...args)),
    },
    leases: inner.leases,
  };
}
