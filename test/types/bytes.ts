// Bytes in contracts.
import { createReadStream } from "node:fs";
import type { ReadableStream as NodeWebStream } from "node:stream/web";
import { bytes, bytesOf, connect, contract, readBytes, serve } from "reciproc/node";
import type { Bytes, ContractOf, Item, Jsonify, Params, Result, Stream } from "reciproc/node";
import { z } from "zod";
import { has, is, type Equal } from "./api.js";

interface Api {
  save(params: { name: string; photo: Bytes }): Bytes;
  both(params: [Bytes, Bytes]): { day: Date; parts: Bytes[]; thumb?: Bytes };
  upload(params: { file: Stream<Bytes> }): number;
  download(params: { name: string }): Stream<Bytes>;
  mixed(): Stream<Bytes | string>;
}

// What arrives is `Bytes`, by its own name, which only `bytesOf` reads.
is<Equal<Jsonify<Bytes>, Bytes>>();
is<Equal<Params<Api["save"]>, { name: string; photo: Bytes }>>();
is<Equal<Result<Api["both"]>, { day: string; parts: Bytes[]; thumb?: Bytes }>>();
is<Equal<Item<Api["download"]>, Bytes>>();

declare const view: Uint8Array;
// A `Blob` takes only what is no part of shared memory.
export const read = new Blob([bytesOf(bytes(view))]);

const server = await serve<Api>({
  port: 0,
  methods: {
    save: ({ photo }) => bytes(bytesOf(photo)),
    both: ([a, b]) => ({ day: new Date(), parts: [a, b] }),
    async upload({ file }, { peer }) {
      for await (const part of peer.iterate(file)) is<Equal<typeof part, Bytes>>();
      for await (const part of readBytes(peer.iterate(file), { maxBytes: 10 }))
        is<Equal<typeof part, Uint8Array<ArrayBuffer>>>();
      return 0;
    },
    // A stream may yield views, or what is marked.
    download: ({ name }, { peer }) => (name === "" ? peer.offer([view]) : createReadStream(name)),
    async *mixed() {
      yield view;
      yield bytes(view);
      yield "text";
    },
  },
});
const peer = await connect<Api>(server.url, { use: [bytes] });
const saved = await peer.request("save", { name: "x", photo: bytes(view) });
is<Equal<typeof saved, Bytes>>();
for await (const part of peer.stream("download", { name: "x" })) is<Equal<typeof part, Bytes>>();
for await (const part of peer.stream("mixed")) is<Equal<typeof part, Bytes | string>>();

// What a stream is offered of. A web stream need not be an async iterable.
declare const blob: Blob;
declare const web: NodeWebStream<Buffer>;
async function* lines(): AsyncGenerator<string> {
  yield "";
}
has<Stream<Bytes>>()(peer.offer(blob.stream()));
has<Stream<Bytes>>()(peer.offer(web));
has<Stream<string>>()(peer.offer(lines()));
has<Stream<Bytes | string | number>>()(peer.offer([view, "text", 1]));
await peer.request("upload", { file: peer.offer(blob.stream()) });

const api = contract({ download: { stream: z.custom<Bytes>() } });
is<Equal<Item<ContractOf<typeof api>["download"]>, Bytes>>();

// What must not compile.
// @ts-expect-error a view that is not marked
await peer.request("save", { name: "x", photo: view });
// @ts-expect-error only `bytesOf` reads what arrives
saved.length;
// @ts-expect-error the values are texts
await peer.request("upload", { file: peer.offer(lines()) });
// @ts-expect-error a Blob is streamed by `blob.stream()`
peer.offer(blob);
await serve<Pick<Api, "save">>({
  port: 0,
  methods: {
    // @ts-expect-error a view that is not marked
    save: () => view,
  },
});
