/** A notification to many peers of one process, which is encoded once. */
import { exceeds, sentForm, utf8Bytes, type MessageText } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { EncodedMessage } from "../core/transport.js";
import { isReady, NotificationHandle } from "../features/live.js";
import type { SendOptions } from "../fleet/topic-options.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";

/** Sends a notification of `method` to these peers, `except` some. */
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
    if (!sendTo(peer, message, handle)) isDropped = true;
  }
  if (isDropped) onDropped?.(utf8Bytes(text));
}

/**
 * Sends a message of a group to one of its peers, and counts it. If it is a broadcast, drops it for a slow reader instead of ending
 * the connection. Returns false if the peer stays open and does not get the message.
 */
export function sendTo(peer: AnyPeer, message: EncodedMessage, handle: NotificationHandle): boolean {
  const connection = connectionOf(peer);
  const mayDrop = handle.isBroadcast || connection.flow.opening !== undefined;
  if (connection.flow.sink.send(message.source, handle, message)) connection.counts.notificationsSent++;
  // A connection that does not take any other message has ended or is about to, unless the message is too long for the other side.
  else if (mayDrop || isTooLong(message, connection)) {
    connection.countDropped(handle.droppable);
    return false;
  }
  return true;
}

/** Returns true if the form in which the message is sent is longer than the other side accepts. */
function isTooLong(message: EncodedMessage, { transport }: Connection): boolean {
  const { maxMessageBytes = Infinity, takesBytes } = transport;
  return exceeds(sentForm(message.source, takesBytes, message), maxMessageBytes);
}

/** Returns false if a peer has said that it does not accept a text of that length. */
export function accepts(peer: AnyPeer, text: MessageText): boolean {
  return !exceeds(text, connectionOf(peer).transport.maxMessageBytes ?? Infinity);
}
