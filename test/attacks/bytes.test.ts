/** Binary frames of an attacker, over real sockets. */
import { describe, expect, it, vi } from "vitest";
import { bytesOf, connect } from "../../src/node.js";
import { binaryFrame } from "../support/binary.js";
import { expectKept, MIB } from "./support/memory.js";
import { closeFrame, frame, rawSocket, target, TEXT, type RawSocket, type Target } from "./support/server.js";

const BINARY = 2;
const PACKED = { "Sec-WebSocket-Protocol": "reciproc.v1" };
const HELLO = '{"hello":{"bytes":true}}';

/** Opens a raw socket that has said that it takes bytes. */
async function opened(on: Target): Promise<RawSocket> {
  const raw = await rawSocket(on, PACKED);
  await raw.write(frame(TEXT, HELLO));
  return raw;
}

const notification = (method: string, ...params: unknown[]): string =>
  JSON.stringify({ jsonrpc: "2.0", method, params });

describe("a hostile binary frame", () => {
  it.each([
    ["has 4,097 attachments", binaryFrame(`[[${Array.from({ length: 4097 }, (_, i) => `"${i}",0`).join()}],{}]`)],
    ["announces more JSON than it has", binaryFrame("[[],{}]").subarray(0, 9)],
    ["announces an attachment of 2^53 bytes", binaryFrame('[["a",9007199254740991],["a"]]')],
    ["nests 400,000 deep without its placeholder", binaryFrame(`[["a",0],${"[".repeat(4e5)}${"]".repeat(4e5)}]`)],
    ["is a pack", Buffer.from('[{"jsonrpc":"2.0","id":1,"method":"here"}]')],
  ])("closes with 1002 if it %s, runs nothing, and others are served", async (_what, content) => {
    const runs: unknown[] = [];
    await using on = await target({ methods: { put: (params: unknown) => void runs.push(params) } });
    using raw = await opened(on);
    const closed = closeFrame(raw.socket);
    await raw.write(frame(BINARY, Buffer.from(content)));
    await raw.write(frame(TEXT, `[${notification("put", 1)}]`));
    expect((await closed).code).toBe(1002);
    await using bystander = await connect(on.url);
    expect(await bystander.request("here")).toBe(true);
    expect(runs).toEqual([]);
  });

  it("closes with 1009 if it is longer than `maxMessageBytes`", async () => {
    await using on = await target({ limits: { maxMessageBytes: 1000 } });
    using raw = await opened(on);
    const closed = closeFrame(raw.socket);
    const message = notification("here", "a");
    await raw.write(frame(BINARY, Buffer.from(binaryFrame(`[["a",1000],${message}]`, new Uint8Array(1000)))));
    expect((await closed).code).toBe(1009);
  });

  it("changes no prototype of the server", async () => {
    const got: unknown[] = [];
    await using on = await target({ methods: { put: ([value]: [unknown]) => void got.push(value) } });
    using raw = await opened(on);
    const message = '{"jsonrpc":"2.0","method":"put","params":[{"__proto__":"a","constructor":{"prototype":"b"}}]}';
    await raw.write(frame(BINARY, Buffer.from(binaryFrame(`[["a",1,"b",1],${message}]`, [1, 2]))));
    await vi.waitFor(() => expect(got).toHaveLength(1));
    expect(Object.getPrototypeOf(got[0])).toBe(Object.prototype);
    expect(({} as { prototype?: unknown }).prototype).toBeUndefined();
    expect((got[0] as { constructor: unknown }).constructor).toEqual({ prototype: Uint8Array.of(2) });
  });

  it("keeps only the bytes that the application keeps, not the rest of the frame", { timeout: 30_000 }, async () => {
    const kept: Uint8Array[] = [];
    await using on = await target({ methods: { put: ([value]: [unknown]) => void kept.push(bytesOf(value)) } });
    using raw = await opened(on);
    const json = `[["a",100,"b",500000],${notification("put", "a", "b")}]`;
    const content = Buffer.concat([binaryFrame(json), Buffer.alloc(500_100)]);
    await expectKept(3 * MIB, async () => {
      for (let n = 1; n <= 20; n++) {
        await raw.write(frame(BINARY, content));
        await vi.waitFor(() => expect(kept).toHaveLength(n));
      }
    });
    expect(kept.every(({ length }) => length === 100)).toBe(true);
  });
});

describe("a client that reads nothing", () => {
  it("is closed with 1013 once too many bytes wait, which count as text does", { timeout: 30_000 }, async () => {
    await using on = await target({ limits: { maxUnsentBytes: MIB } });
    using raw = await opened(on);
    const { bytes } = await import("../../src/index.js");
    raw.socket.pause();
    await vi.waitFor(() => expect(raw.peer.stats().bytesReceived).toBeGreaterThan(0));
    const view = bytes(new Uint8Array(MIB / 2));
    await vi.waitFor(
      () => {
        for (let n = 0; n < 20; n++) raw.peer.notify("news", [view]);
        expect(raw.peer.state).toBe("closed");
      },
      { timeout: 20_000 },
    );
    expect((await raw.peer.closed).code).toBe(1013);
  });
});
