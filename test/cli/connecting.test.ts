import { describe, expect, it } from "vitest";
import { run } from "./program.js";
import { plainServer } from "./server.js";

/** The arguments of each command after the URL. */
const COMMANDS = [
  ["call", ["add"]],
  ["notify", ["add"]],
  ["listen", []],
] as const;

/** A server that answers one call or closes, and records the offered subprotocols. */
async function offers(command: string, ...args: string[]): Promise<{ code: number | null; offer: string | undefined }> {
  let offer: string | undefined;
  const url = await plainServer((socket, request) => {
    offer = request.headers["sec-websocket-protocol"];
    socket.on("message", () => socket.send('{"jsonrpc":"2.0","id":1,"result":3}'));
    if (command === "listen") socket.close(1000);
  });
  const { code } = await run([command, url, ...args]);
  return { code, offer };
}

describe("--plain", () => {
  it.each(COMMANDS)("makes %s offer no subprotocol", async (command, args) => {
    expect(await offers(command, ...args, "--plain")).toEqual({ code: 0, offer: undefined });
  });

  it.each(COMMANDS)("is not the default of %s", async (command, args) => {
    expect(await offers(command, ...args)).toEqual({ code: 0, offer: "reciproc.v1" });
  });
});

it.each(COMMANDS)(
  "%s prints host, port and reason when the connection is refused, and exits 2",
  async (command, args) => {
    const where = "127.0.0.1:1";
    expect(await run([command, where, ...args])).toEqual({
      code: 2,
      stdout: "",
      stderr: `cannot connect to ${where}: connection refused\n`,
    });
  },
);
