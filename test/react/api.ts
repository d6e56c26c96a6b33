/** The contract of the page of these tests. */
import type { Stream } from "reciproc";
import type { TopicClient, TopicServer } from "reciproc/react";

export interface Visitor {
  readonly id: string;
  readonly name: string;
}

export interface ServerApi extends TopicServer<Visitor> {
  /** Counts from a number on: yields each number after the test has released it. */
  count(params: { from: number; to: number }): Stream<number>;
  fail(): Stream<number>;
  echo(params: [value: number]): number;
  /** Removes a visitor from a topic. The notification to the members contains the notice. */
  sendAway(params: { topic: string; visitor: string; notice: string }): void;
  numbers(): number[];
  /** Makes the server send the notification `note`. */
  noteMe(params: [value: number]): void;
  /** Returns when it is cancelled. */
  wait(): boolean;
  /** Makes the server call `ask` of the caller, and returns the answer. */
  askMe(params: [question: string]): string;
}

export interface ClientApi extends TopicClient<Visitor> {
  note(params: [value: number]): void;
  other(params: [value: number]): void;
  ask(params: [question: string]): string;
  served(params: [value: number]): void;
}

/** What the page renders. The test changes it by calling `show` of the page. */
export interface Shown {
  /** The address of the server. If it is missing, nothing is rendered, so the provider is unmounted. */
  url?: string;
  strict?: boolean;
  options?: { reconnect?: boolean; limits?: { maxMessageBytes: number } };
  /** A label for each component that listens. */
  listeners?: string[];
  asker?: string;
  stream?: { from: number; to: number; keep?: number };
  fails?: boolean;
  /** Whether a component reads `numbers` by TanStack Query, and adds the notes to them. */
  numbers?: boolean;
  /** Whether a component reads `wait` by TanStack Query. */
  waits?: boolean;
  /** Whether the listeners throw. */
  throws?: boolean;
  /** A topic for each component that shows members. */
  topics?: string[];
  /** Whether the provider is inside of a hidden `Activity` of React 19. */
  hidden?: boolean;
  /** Whether a component reads the peer, and then suspends together with its provider. */
  suspends?: boolean;
  /** Whether a hook is used without a provider. */
  orphan?: boolean;
}
