/** A page that renders what its test asks for. It is bundled with React 18 and with React 19. */
import { QueryClient, QueryClientProvider, useQuery, useQueryClient } from "@tanstack/react-query";
import * as React from "react";
import { createRoot } from "react-dom/client";
import type { Peer } from "reciproc";
import { createReciproc } from "reciproc/react";
import type { ClientApi, ServerApi, Shown } from "./api.js";

declare global {
  /** Renders. Resolves when React has committed it, and has run the effects of what was mounted and unmounted. */
  var show: (shown: Shown) => Promise<void>;
  /** What the listeners were called with, each with the label and the number of its render. */
  var heard: { label: string; render: number; params: unknown }[];
  /** The peer that the components see, and all peers that they have seen. */
  var peer: Peer<ClientApi, ServerApi>;
  var peers: Set<unknown>;
  /** Every status that was rendered, each once in a row. */
  var statuses: string[];
  /** The errors that React reports. */
  var reported: string[];
  var restart: () => void;
  var streamRenders: number;
}

const { Provider, usePeer, useStatus, useNotification, useHandler, useStream, useTopicMembers } = createReciproc<
  ServerApi,
  ClientApi
>();

globalThis.heard = [];
globalThis.peers = new Set();
globalThis.statuses = [];
globalThis.reported = [];
globalThis.streamRenders = 0;

function Status() {
  const status = useStatus();
  globalThis.peer = usePeer();
  peers.add(peer);
  if (statuses.at(-1) !== status) statuses.push(status);
  return <output id="status">{status}</output>;
}

function Listener({ label, render }: { label: string; render: number }) {
  useNotification("note", (params) => void heard.push({ label, render, params }));
  return null;
}

function Asker({ answer }: { answer: string }) {
  useHandler("ask", ([question]) => `${question} ${answer}`);
  return null;
}

function Failed() {
  useNotification("note", () => {
    throw new Error("the listener failed");
  });
  return null;
}

const FOR_EVER = { staleTime: Infinity, networkMode: "always" } as const;

function Numbers() {
  const peer = usePeer();
  const queries = useQueryClient();
  const queryKey = ["numbers"];
  const { data = [] } = useQuery({
    queryKey,
    queryFn: ({ signal }) => peer.request("numbers", undefined, { signal }),
    ...FOR_EVER,
  });
  useNotification("note", ([value]) => {
    queries.setQueryData<number[]>(queryKey, (old = []) => [...old, value]);
  });
  return <output id="numbers">{data.join()}</output>;
}

function Waiting() {
  const peer = usePeer();
  useQuery({ queryKey: ["wait"], queryFn: ({ signal }) => peer.request("wait", undefined, { signal }), ...FOR_EVER });
  return null;
}

/** Returns what is shown of an error. */
function nameOf(error: unknown): string | undefined {
  return error === undefined ? undefined : (error as Error).name;
}

function Counter({ from, to, keep }: { from: number; to: number; keep?: number }) {
  const { items, last, done, error, restart } = useStream("count", { from, to }, { keep });
  globalThis.restart = restart;
  streamRenders++;
  return <output id="stream">{JSON.stringify({ items, last, done, error: nameOf(error) })}</output>;
}

function Failing() {
  const { items, done, error } = useStream("fail");
  return <output id="fails">{JSON.stringify({ items, done, error: (error as Error | undefined)?.message })}</output>;
}

function Members({ topic, at }: { topic: string; at: number }) {
  const { members, error } = useTopicMembers(topic);
  const names = members?.map(({ name }) => name).join() ?? "unknown";
  return <output id={`members-${at}`}>{error === undefined ? names : (error as Error).message}</output>;
}

const never = new Promise<never>(() => {});

function Suspending(): React.ReactElement {
  globalThis.peer = usePeer();
  peers.add(peer);
  // React 18 has no `use`: a component suspends by throwing a promise.
  // oxlint-disable-next-line typescript/only-throw-error
  throw never;
}

/** Shows the message of an error that a component threw. */
class Boundary extends React.Component<{ children: React.ReactNode }, { message?: string }> {
  override state: { message?: string } = {};
  static getDerivedStateFromError(error: Error) {
    return { message: error.message };
  }
  override render() {
    const { message } = this.state;
    return message === undefined ? this.props.children : <output id="thrown">{message}</output>;
  }
}

let renders = 0;
const queryClient = new QueryClient();

function App({ shown }: { shown: Shown }) {
  renders++;
  const { url, options, listeners = [], asker, stream, fails, topics = [], suspends, numbers, waits, throws } = shown;
  if (url === undefined) return null;
  return (
    <Provider url={url} options={{ ...options, methods: { served: () => {} } }}>
      <Status />
      {suspends === true && <Suspending />}
      {listeners.map((label) => (
        <Listener key={label} label={label} render={renders} />
      ))}
      {asker !== undefined && <Asker answer={asker} />}
      {stream !== undefined && <Counter {...stream} />}
      {fails === true && <Failing />}
      {throws === true && <Failed />}
      <QueryClientProvider client={queryClient}>
        {numbers === true && <Numbers />}
        {waits === true && <Waiting />}
      </QueryClientProvider>
      {topics.map((topic, at) => (
        <Members key={at} topic={topic} at={at} />
      ))}
    </Provider>
  );
}

const root = createRoot(document.querySelector<HTMLElement>("#root") ?? document.body, {
  onRecoverableError: (error) => void reported.push(String(error)),
});

/** Renders nothing again if what it shows is the same, so that only the hooks can notice that an `Activity` has hidden it. */
const SameApp = React.memo(App, (a, b) => JSON.stringify(a) === JSON.stringify(b));

/** Calls `onCommitted` after the effects of everything below. React runs the effects of what it unmounts before them. */
function Committed({ onCommitted, children }: { onCommitted: () => void; children: React.ReactNode }) {
  React.useEffect(onCommitted, [onCommitted]);
  return children;
}

globalThis.show = ({ hidden, strict = true, orphan = false, ...shown }) => {
  let element = orphan ? <Status /> : <SameApp shown={shown} />;
  if (hidden !== undefined) element = <React.Activity mode={hidden ? "hidden" : "visible"}>{element}</React.Activity>;
  return new Promise((resolve) => {
    element = (
      <Committed onCommitted={resolve}>
        <Boundary>
          <React.Suspense fallback={<output id="waiting" />}>{element}</React.Suspense>
        </Boundary>
      </Committed>
    );
    // React mounts twice only what is mounted together with a StrictMode that has no other component above it.
    root.render(strict ? <React.StrictMode>{element}</React.StrictMode> : element);
  });
};
document.title = `React ${React.version}`;
