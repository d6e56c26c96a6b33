/** A thief who has recorded a client's frames, and replays them. */
import { connect as connectTcp } from "node:net";
import { WebSocket } from "ws";
import { Units } from "./units.js";

/** The reply to a thief: a frame, or the code of a close. */
export type Answer = { frame: string } | { code: number };

/** A thief's connection on which `resume` was sent. */
export interface Intrusion {
  readonly answer: Answer;
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
  const frames: string[] = [];
  const answer = await new Promise<Answer>((resolve) => {
    webSocket.on("message", (data: Buffer) => {
      if (frames.push(data.toString()) === 1) webSocket.send(JSON.stringify({ resume: { ...resume, limits: LIMITS } }));
      else resolve({ frame: frames[1]! });
    });
    void closed.then((code) => resolve({ code }));
  });
  const { resumed } = ("frame" in answer ? JSON.parse(answer.frame) : {}) as { resumed?: { token?: string } };
  return { answer, token: resumed?.token, webSocket, closed };
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
