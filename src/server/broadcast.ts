/** A notification to many peers of one process, which is encoded once. */
import { exceeds, sentForm, utf8Bytes, type MessageText } from "../message/codec.js";
import type { Connection } from "../peer/connection.js";
import { EncodedMessage } from "../message/transport.js";
import { countDropped, isReady, NotificationHandle } from "../features/live.js";
import type { SendOptions } from "../topics/topic-options.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";

/** Sends a notification of `method` to these peers, `except` some, and counts it. A peer that does not get it, and stays open, misses it. */
export function sendAll(
  peers: readonly AnyPeer[],
  method: string,
  text: MessageText,
  { except, whenSlow, volatile, latest, onDropped }: SendOptions,
): void {
  const message = new EncodedMessage(text);
  // All peers share it, so that a slow peer has one reference for each key.
  const handle = new NotificationHandle(method, latest, whenSlow === "drop");
  let isDropped = false;
  for (const peer of peers) {
    const connection = connectionOf(peer);
    if (except?.has(peer) === true || connection.ended !== undefined || (volatile === true && !isReady(connection)))
      continue;
    if (connection.flow.sink.send(text, handle, message)) connection.counts.notificationsSent++;
    else if (handle.isBroadcast || staysOpen(connection, message)) {
      countDropped(connection, method);
      isDropped = true;
    }
  }
  if (isDropped) onDropped?.(utf8Bytes(text));
}

/**
 * Returns true if a connection that has not taken a message stays open: `onOpen` runs, or the message is too long for the other side.
 * Otherwise, the connection has ended or is about to.
 */
function staysOpen({ flow, transport }: Connection, message: EncodedMessage): boolean {
  const { maxMessageBytes = Infinity, takesBytes } = transport;
  return flow.openingQueue !== undefined || exceeds(sentForm(message.source, takesBytes, message), maxMessageBytes);
}

/** Returns false if a peer has said that it does not accept a text of that length. */
export function accepts(peer: AnyPeer, text: MessageText): boolean {
  return !exceeds(text, connectionOf(peer).transport.maxMessageBytes ?? Infinity);
}
