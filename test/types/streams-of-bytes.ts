/** Streams of bytes: their values are `Bytes` in a contract, and both sides may offer views that are not marked. */
import { bytes, type Bytes, type Handlers, type Peer, type Stream } from "reciproc";

interface Files {
  upload(params: { content: Stream<Bytes> }): number;
  download(): Stream<Bytes>;
  count(): Stream<number>;
}
declare const peer: Peer<Files, Files>;
declare const views: AsyncIterable<Uint8Array>;

await peer.request("upload", { content: peer.offer(views) });
await peer.request("upload", { content: peer.offer([new ArrayBuffer(1)]) });
await peer.request("upload", { content: peer.offer([bytes(new Uint8Array(1))]) });
// @ts-expect-error these are no bytes
await peer.request("upload", { content: peer.offer([1]) });

export const marked: Pick<Handlers<Files, any>, "download"> = {
  async *download() {
    yield bytes(new Uint8Array(1));
  },
};
export const unmarked: Pick<Handlers<Files, any>, "download"> = { download: () => views };
export const numbers: Pick<Handlers<Files, any>, "count"> = {
  // @ts-expect-error a stream of numbers has no bytes
  count: () => views,
};
