/** What surrounds the board: presence, questions of others, import, upload, log. */
import { useEffect, useRef, useState } from "react";
import type { Progress } from "../api.js";
import { useHandler, usePeer, useStatus, useStream, useTopicMembers } from "./rpc.js";

export function People() {
  const { members = [] } = useTopicMembers("board");
  const names = [...new Set(members.map(({ name }) => name))];
  return <p aria-label="Here">{names.join(", ")}</p>;
}

/** Asks the user when the server calls `confirm`. If the server cancels the call, the question disappears. */
export function Confirm() {
  const [asked, setAsked] = useState<{ question: string; answer: (yes: boolean) => void }>();
  useHandler("confirm", ({ question }, { signal }) => {
    return new Promise<boolean>((resolve) => {
      setAsked({ question, answer: resolve });
      signal.addEventListener("abort", () => resolve(false));
    }).finally(() => setAsked(undefined));
  });
  if (asked === undefined) return null;
  return (
    <dialog open>
      <p>{asked.question}</p>
      <button onClick={() => asked.answer(true)}>Yes</button>
      <button onClick={() => asked.answer(false)}>No</button>
    </dialog>
  );
}

/** Imports the lines of a text. The call reports progress, and cancelling it stops the server. */
export function Import() {
  const peer = usePeer();
  const running = useRef<AbortController>(undefined);
  const [state, setState] = useState("");
  const start = async (data: FormData) => {
    const lines = String(data.get("lines"))
      .split("\n")
      .filter((line) => line.trim() !== "");
    const { signal } = (running.current = new AbortController());
    let count = 0;
    const onProgress = ({ done }: Progress) => setState(`${(count = done)} of ${lines.length}`);
    try {
      await peer.request("import", { lines }, { signal, onProgress, timeoutMs: Infinity });
      setState(`Imported ${lines.length} cards`);
    } catch (error) {
      setState(signal.aborted ? `Cancelled after ${count} cards` : (error as Error).message);
    }
  };
  return (
    <form aria-label="Import" action={start}>
      <textarea name="lines" aria-label="Lines" rows={3} required />
      <button>Import</button>
      <button type="button" onClick={() => running.current?.abort()}>
        Cancel
      </button>
      <output>{state}</output>
    </form>
  );
}

/** A multiple of 3, so that the parts of a file are base64 without padding inside. */
const PART_BYTES = 24_576;

/** Reads a file part by part, as base64. The server reads slowly if it must, and then the file is read slowly. */
async function* base64Of(file: File): AsyncIterable<string> {
  for (let at = 0; at < file.size; at += PART_BYTES) {
    const part = new Uint8Array(await file.slice(at, at + PART_BYTES).arrayBuffer());
    yield btoa(String.fromCharCode(...part));
  }
}

export function Upload() {
  const peer = usePeer();
  const [state, setState] = useState("");
  const upload = async (file: File) => {
    const onProgress = ({ done }: Progress) => setState(`${Math.floor((100 * done) / file.size)} %`);
    try {
      const params = { name: file.name, content: peer.offer(base64Of(file)) };
      const { bytes, sha256 } = await peer.request("upload", params, { onProgress, timeoutMs: Infinity });
      setState(`${bytes} bytes, SHA-256 ${sha256}`);
    } catch (error) {
      setState((error as Error).message);
    }
  };
  return (
    <form aria-label="Upload">
      <input
        type="file"
        aria-label="File"
        onChange={({ target }) => target.files?.[0] && void upload(target.files[0])}
      />
      <output>{state}</output>
    </form>
  );
}

/** Shows what the server logs. After a restart of the server, it reads the log of the new process. */
export function Log() {
  const { items, error, restart } = useStream("log", undefined, { keep: 8, timeoutMs: Infinity });
  const isClosed = useStatus() === "closed";
  useEffect(() => {
    if (error !== undefined && !isClosed) restart();
  }, [error, isClosed, restart]);
  return <pre aria-label="Log">{items.join("\n")}</pre>;
}
