/** A thief who has recorded a client's frames, and replays them. */
import { connect as connectTcp } from "node:net";
import { WebSocket } from "ws";
import { Units } from "./units.js";

/** A thief's connection on which `resume` was sent. */
export interface Intrusion {
  /** The token that the thief got. */
  readonly token: string | undefined;
  readonly webSocket: WebSocket;
  /** Resolves with the code of the close. */
  readonly closed: Promise<number>;
}

/** The limits of a thief: as much as the server sends. */
const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 20 };

/** Sends `resume`, which needs only a token. */
export async function intrude(
  port: number,
  name: string,
  resume: { token: string; received: number; attempt: number },
): Promise<Intrusion> {
  const webSocket = new WebSocket(`ws://127.0.0.1:${port}`, ["reciproc.v1", "reciproc.resume"], {
    headers: { authorization: name },
  });
  const closed = new Promise<number>((resolve) => webSocket.on("close", resolve));
  webSocket.on("error", () => {});
  let isAsked = false;
  const token = await new Promise<string | undefined>((resolve) => {
    webSocket.on("message", (data: Buffer) => {
      const { resumed } = JSON.parse(data.toString()) as { resumed?: { token?: string } };
      if (isAsked) return resolve(resumed?.token);
      isAsked = true;
      webSocket.send(JSON.stringify({ resume: { ...resume, limits: LIMITS } }));
    });
    void closed.then(() => resolve(undefined));
  });
  return { token, webSocket, closed };
}

/**
 * Replays what a client sent, byte for byte. Resolves with the first control frames of the reply, until one of them
 * refuses or the connection ends.
 */
export async function replay(port: number, said: readonly Buffer[]): Promise<object[]> {
  const socket = connectTcp(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(Buffer.concat(said));
  const units = new Units();
  const answers: object[] = [];
  try {
    for await (const chunk of socket) {
      for (const { bytes, control } of units.take(chunk as Buffer)) {
        if (control !== undefined) answers.push(control);
        if (bytes[0] === 0x88 || (control !== undefined && "resumed" in control)) return answers;
      }
    }
  } catch {
    // A reset is a reply too.
  } finally {
    socket.destroy();
  }
  return answers;
}
