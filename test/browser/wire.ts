/** A wire between a page and the demo, which can be cut. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { listening } from "../support/network.js";

/** What the page opens instead of the demo. */
export interface Wire extends AsyncDisposable {
  readonly url: string;
  /** Resets every connection that goes through it, and from now on every new one. */
  cut(): void;
  /** Carries new connections again. */
  mend(): void;
}

/** A wire to the demo at that address. */
export async function startWire(url: string): Promise<Wire> {
  const ends = new Set<Socket>();
  let isCut = false;
  const server = createServer((near) => {
    if (isCut) return void near.resetAndDestroy();
    const far = connect(Number(new URL(url).port), "127.0.0.1");
    for (const [end, other] of [
      [near, far],
      [far, near],
    ] as const) {
      ends.add(end);
      end.pipe(other);
      // One that is reset resets the other by this.
      end.on("error", () => {});
      end.on("close", () => {
        ends.delete(end);
        other.destroy();
      });
    }
  });
  const open = await listening(server);
  return {
    url: `http://localhost:${(server.address() as AddressInfo).port}`,
    cut() {
      isCut = true;
      for (const end of ends) end.resetAndDestroy();
    },
    mend() {
      isCut = false;
    },
    [Symbol.asyncDispose]: () => open[Symbol.asyncDispose](),
  };
}
