/** What surrounds the board: presence, questions of others, import, upload, log. */
import { useEffect, useState } from "react";
import { useOthers } from "reciproc/react";
import type { Progress } from "../api.js";
import { useHandler, usePeer, useStatus, useStream } from "./rpc.js";

/** Shows each user once, however many windows they have. */
export function People({ name }: { name: string }) {
  const others = useOthers(usePeer(), "people", {}, { by: ({ as }) => as.name });
  return <p aria-label="Here">{[name, ...others.map(({ as }) => as.name)].join(", ")}</p>;
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
  const [running, setRunning] = useState<AbortController>();
  const [state, setState] = useState("");
  const start = async (lines: string[]) => {
    const controller = new AbortController();
    const { signal } = controller;
    let count = 0;
    const onProgress = ({ done }: Progress) => setState(`${(count = done)} of ${lines.length}`);
    setRunning(controller);
    try {
      await peer.request("import", { lines }, { signal, onProgress, timeoutMs: Infinity });
      setState(`Imported ${count} cards`);
    } catch (error) {
      setState(signal.aborted ? `Cancelled after ${count} cards` : (error as Error).message);
    }
    setRunning(undefined);
  };
  const submit = (data: FormData) => {
    const lines = String(data.get("lines")).split("\n");
    void start(lines.filter((line) => line.trim() !== ""));
  };
  return (
    <form aria-label="Import" action={submit}>
      <h2>Import</h2>
      <textarea name="lines" aria-label="Lines" placeholder="A card for each line" rows={3} required />
      <button disabled={running !== undefined}>Import</button>
      <button type="button" disabled={running === undefined} onClick={() => running?.abort()}>
        Cancel
      </button>
      <output>{state}</output>
    </form>
  );
}

/** Uploads a file as a stream of bytes. The page reads the file no faster than the server stores it. */
export function Upload() {
  const peer = usePeer();
  const [state, setState] = useState("");
  const upload = async (file: File) => {
    const onProgress = ({ done }: Progress) => setState(`${file.name}: ${Math.floor((100 * done) / file.size)} %`);
    try {
      const params = { name: file.name, content: peer.offer(file.stream()) };
      const length = await peer.request("upload", params, { onProgress, timeoutMs: Infinity });
      setState(`${file.name}: ${length.toLocaleString("en")} bytes stored`);
    } catch (error) {
      setState((error as Error).message);
    }
  };
  return (
    <form aria-label="Upload">
      <h2>Upload</h2>
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
  const isOpen = useStatus() === "open";
  useEffect(() => {
    if (error !== undefined && isOpen) restart();
  }, [error, isOpen, restart]);
  return (
    <section>
      <h2>Log</h2>
      <pre aria-label="Log">{items.join("\n")}</pre>
    </section>
  );
}
