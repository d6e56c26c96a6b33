/** A thief who has recorded a client's frames. */
import { WebSocket } from "ws";

export type Intrusion = Awaited<ReturnType<typeof intrude>>;

const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 20 };

/** Sends `resume`, which needs only a token. Returns the token that the thief got, and the code of the close. */
export async function intrude(
  port: number,
  name: string,
  resume: { token: string; received: number; attempt: number },
) {
  const webSocket = new WebSocket(`ws://127.0.0.1:${port}`, ["reciproc.v1", "reciproc.resume"], {
    headers: { authorization: name },
  });
  const closed = new Promise<number>((resolve) => webSocket.on("close", resolve));
  webSocket.on("error", () => {});
  let isAsked = false;
  const token = await new Promise<string | undefined>((resolve) => {
    webSocket.on("message", (data: Buffer, isBinary: boolean) => {
      // A replayed message with bytes.
      if (isBinary) return;
      const { resumed } = JSON.parse(data.toString()) as { resumed?: { token?: string } };
      if (isAsked) return resolve(resumed?.token);
      isAsked = true;
      webSocket.send(JSON.stringify({ resume: { ...resume, limits: LIMITS } }));
    });
    void closed.then(() => resolve(undefined));
  });
  return { token, webSocket, closed };
}
