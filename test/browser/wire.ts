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
    if (isCut) {
      near.resetAndDestroy();
      return;
    }
    const far = connect(Number(new URL(url).port), "127.0.0.1");
    carry(near, far);
    carry(far, near);
  });
  const carry = (from: Socket, to: Socket): void => {
    ends.add(from);
    from.pipe(to);
    // The close that follows is what counts.
    from.on("error", () => {});
    from.on("close", () => {
      ends.delete(from);
      to.destroy();
    });
  };
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
