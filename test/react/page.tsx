/** A page that renders what its test asks for. */
import { QueryClient, QueryClientProvider, useQuery, useQueryClient } from "@tanstack/react-query";
import * as React from "react";
import { createRoot } from "react-dom/client";
import type { Joined, MemberChange, Peer, People, PresenceParams, Stream } from "../../src/index.js";
import {
  createReciproc,
  useMutation,
  useMyPresence,
  useOthers,
  usePresence,
  useTopic,
  type ProviderProps,
} from "../../src/react/index.js";

export interface Visitor {
  readonly name: string;
  readonly x?: number;
}

export interface ServerApi {
  people(params: { topic: string } & PresenceParams<{ x: number }>): Joined<People<Visitor>>;
  /** Counts from a number to another. Without a positive end, yields the first, and waits until its reader stops. */
  count(params: { from: number; to: number }): Stream<number>;
  echo(params: [value: number]): number;
  numbers(): number[];
  follow(params: { topic: string; since?: string }): Joined<number[]>;
  unfollow(params: { topic: string }): void;
  put(params: { value: number; key: string }): void;
  /** Makes the server send the notification `note`. */
  noteMe(params: [value: number]): void;
  /** Makes the server call `ask` of the caller with these params, and returns the answer. */
  askMe(params: unknown[]): string;
}

export interface ClientApi {
  people?(change: MemberChange<Visitor>): void;
  note(params: [value: number]): void;
  counted(params: { value: number }): void;
  other(params: [value: number]): void;
  ask(params: [question: string]): string;
  served(params: [value: number]): void;
}

export interface Shown {
  /** The address of the server. If it is missing, nothing is rendered, so the provider is unmounted. */
  url?: string;
  strict?: boolean;
  options?: ProviderProps<ServerApi, ClientApi>["options"];
  /** A label for each component that listens. */
  listeners?: string[];
  asker?: string;
  connection?: boolean;
  stream?: { from: number; to: number; keep?: number };
  /** Whether a component reads `numbers` by TanStack Query, and adds the notes to them. */
  numbers?: boolean;
  /** A topic for each component that shows the others, and one for a component that shows the own state. */
  topics?: string[];
  mine?: string;
  followers?: number;
  /** Whether the provider is inside of a hidden `Activity` of React 19. */
  hidden?: boolean;
  /** Whether a component reads the peer, and then suspends together with its provider. */
  suspends?: boolean;
  /** Whether a hook is used without a provider. */
  orphan?: boolean;
}

type Open = NonNullable<ProviderProps<ServerApi, ClientApi>["open"]>;

const { Provider, usePeer, useStatus, useConnection, useNotification, useHandler, useStream } = createReciproc<
  ServerApi,
  ClientApi
>();

export class Page {
  /** What the listeners were called with, each with the label and the number of its render. */
  readonly heard: { label: string; render: number; params: unknown }[] = [];
  /** The peer that the components see, and all peers that they have seen. */
  peer!: Peer<ClientApi, ServerApi>;
  readonly peers = new Set<unknown>();
  /** Every status that was rendered, each once in a row. */
  readonly statuses: string[] = [];
  restart!: () => void;
  retryNow!: () => void;
  put!: (params: { value: number }) => Promise<void>;
  setMine!: (state: { x: number }) => void;
  /** What the component of the own state sets before it subscribes. */
  readonly early: { x: number }[] = [];
  /** What each render of a component shows that has a followed list, and its pending changes. */
  readonly drawn: number[][] = [];
  streamRenders = 0;
  /** The components of the presence that were rendered, in order. */
  readonly rendered: string[] = [];
  renders = 0;
  readonly open: Open;
  readonly #element = document.createElement("div");
  readonly #root = createRoot(this.#element, {
    // React would print the errors that a test expects, as if it had failed.
    onCaughtError: () => {},
    onRecoverableError: () => {},
  });

  constructor(open: Open) {
    this.open = open;
  }

  see(peer: Peer<ClientApi, ServerApi>): void {
    this.peer = peer;
    this.peers.add(peer);
  }

  text(id: string): string | undefined {
    return this.#element.querySelector(`#${id}`)?.textContent;
  }

  /** Renders. Resolves when React has committed it, and has run the effects of what was mounted and unmounted. */
  show({ hidden, strict = true, orphan = false, ...shown }: Shown): Promise<void> {
    let element = orphan ? <Status /> : <SameApp shown={shown} />;
    if (hidden !== undefined) element = <React.Activity mode={hidden ? "hidden" : "visible"}>{element}</React.Activity>;
    return new Promise((resolve) => {
      element = (
        <Committed onCommitted={resolve}>
          <Current.Provider value={this}>
            <Boundary>
              <React.Suspense fallback={<output id="waiting" />}>{element}</React.Suspense>
            </Boundary>
          </Current.Provider>
        </Committed>
      );
      // React mounts twice only what is mounted together with a StrictMode that has no other component above it.
      this.#root.render(strict ? <React.StrictMode>{element}</React.StrictMode> : element);
    });
  }
}

const Current = React.createContext<Page | undefined>(undefined);
const usePage = (): Page => React.useContext(Current)!;

function Status() {
  const status = useStatus();
  const page = usePage();
  page.see(usePeer());
  if (page.statuses.at(-1) !== status) page.statuses.push(status);
  return <output id="status">{status}</output>;
}

function Connection() {
  const { state, cause, countdown, retryNow } = useConnection();
  usePage().retryNow = retryNow;
  return <output id="connection">{[state, countdown, cause?.message].join("; ")}</output>;
}

function Listener({ label, render }: { label: string; render: number }) {
  const page = usePage();
  useNotification("note", (params) => void page.heard.push({ label, render, params }));
  return null;
}

function Asker({ answer }: { answer: string }) {
  useHandler("ask", ([question]) => `${question} ${answer}`);
  return null;
}

function Numbers() {
  const peer = usePeer();
  const queries = useQueryClient();
  const queryKey = ["numbers"];
  const { data = [] } = useQuery({
    queryKey,
    queryFn: ({ signal }) => peer.request("numbers", undefined, { signal }),
    staleTime: Infinity,
    networkMode: "always",
  });
  useNotification("note", ([value]) => {
    queries.setQueryData<number[]>(queryKey, (old = []) => [...old, value]);
  });
  return <output id="numbers">{data.join()}</output>;
}

const nameOf = (error: unknown): string | undefined => (error as Error | undefined)?.name;

function Counter({ from, to, keep }: { from: number; to: number; keep?: number }) {
  const { items, last, done, error, restart } = useStream("count", { from, to }, { keep });
  const page = usePage();
  page.restart = restart;
  page.streamRenders++;
  return <output id="stream">{JSON.stringify({ items, last, done, error: nameOf(error) })}</output>;
}

function Members({ topic, at }: { topic: string; at: number }) {
  const { others, me, isCurrent, error } = usePresence(usePeer(), "people", { topic }, { by: ({ as }) => as.name });
  const names = others.map(({ as: { name, x = "" } }) => `${name}${x}`);
  const text = `${names.join()};${me?.x ?? ""}`;
  return (
    <output id={`members-${at}`}>{isCurrent ? text : `(${text} ${(error as Error | undefined)?.message})`}</output>
  );
}

function Others({ topic }: { topic: string }) {
  const { length } = useOthers(usePeer(), "people", { topic });
  usePage().rendered.push("others");
  return <output id="others">{length}</output>;
}

function Mine({ topic }: { topic: string }) {
  const page = usePage();
  const [me, set] = useMyPresence(usePeer(), "people", { topic }, { state: { x: 0 } });
  page.setMine = set;
  React.useLayoutEffect(() => page.early.splice(0).forEach(set));
  page.rendered.push("mine");
  return <output id="mine">{me?.x}</output>;
}

const REDUCE = { counted: (list: number[], { value }: { value: number }) => [...list, value] };

function Follower({ at }: { at: number }) {
  const state = useTopic(usePeer(), "follow", { topic: "list" }, { reduce: REDUCE, leave: "unfollow" });
  const { pending, failed, mutate } = useMutation(usePeer(), "put");
  const page = usePage();
  page.put = mutate;
  const values = pending.map(({ value }) => value);
  page.drawn.push([...(state.value ?? []), ...values]);
  return (
    <>
      <output id={`followed-${at}`}>{JSON.stringify(state)}</output>
      <output id={`changes-${at}`}>{`${values.join()};${nameOf(failed?.error) ?? ""}`}</output>
    </>
  );
}

function Suspending(): React.ReactElement {
  usePage().see(usePeer());
  // React 18 has no `use`: a component suspends by throwing a promise.
  // oxlint-disable-next-line typescript/only-throw-error
  throw new Promise(() => {});
}

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

const queryClient = new QueryClient();

function App({ shown }: { shown: Shown }) {
  const page = usePage();
  const renders = ++page.renders;
  const { url, options, listeners = [], asker, stream, topics = [], suspends, numbers } = shown;
  if (url === undefined) return null;
  return (
    <Provider url={url} options={{ ...options, methods: { served: () => {} } }} open={page.open}>
      <Status />
      {suspends === true && <Suspending />}
      {listeners.map((label) => (
        <Listener key={label} label={label} render={renders} />
      ))}
      {asker !== undefined && <Asker answer={asker} />}
      {shown.connection === true && <Connection />}
      {stream !== undefined && <Counter {...stream} />}
      <QueryClientProvider client={queryClient}>{numbers === true && <Numbers />}</QueryClientProvider>
      {Array.from({ length: shown.followers ?? 0 }, (_, at) => (
        <Follower key={at} at={at} />
      ))}
      {shown.mine !== undefined && <Mine topic={shown.mine} />}
      {shown.mine !== undefined && <Others topic={shown.mine} />}
      {topics.map((topic, at) => (
        <Members key={at} topic={topic} at={at} />
      ))}
    </Provider>
  );
}

/** Renders nothing again if what it shows is the same, so that only the hooks can notice that an `Activity` has hidden it. */
const SameApp = React.memo(App, (a, b) => JSON.stringify(a) === JSON.stringify(b));

/** Calls `onCommitted` after the effects of everything below. React runs the effects of what it unmounts before them. */
function Committed({ onCommitted, children }: { onCommitted: () => void; children: React.ReactNode }) {
  React.useEffect(onCommitted, [onCommitted]);
  return children;
}
