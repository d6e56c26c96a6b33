/** Somebody who means harm, in a process of its own (`attacker.mjs`). */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const SCRIPT = fileURLToPath(new URL("attacker.mjs", import.meta.url));

/** A flood of messages. */
export interface Flood {
  url: string;
  protocols?: string[];
  /** What each connection sends when it opens. */
  first?: string[];
  /** What is sent in turn; `$i` in it is a number that never repeats. */
  texts?: string[];
  /** How many are sent each `everyMs`, on each connection. */
  burst?: number;
  everyMs?: number;
  connections?: number;
  /** Whether what comes back is read. */
  reads?: boolean;
}

/** What came of a flood. */
export interface Damage {
  readonly sent: number;
  /** Connections opened, those that were opened again included. */
  readonly opened: number;
  /** How many answers of each kind: the code of an error, or `result`. */
  readonly answers: Readonly<Record<string, number>>;
  /** How many closes of each kind: the code and the reason. */
  readonly closes: Readonly<Record<string, number>>;
}

/** Many TCP connections at once. */
export interface Knock {
  port: number;
  count: number;
  /** What each writes. */
  text: string;
  /** Whether it writes byte by byte. */
  dribbles?: boolean;
  /** Whether it hangs up when it is answered and has written all. */
  hangsUp?: boolean;
}

/** A flood of bytes over one connection. */
export interface Pour {
  port: number;
  /** The text of the handshake. */
  head: string;
  /** What is written once, before the flood. */
  first: Buffer;
  /** What is written again and again. */
  chunk: Buffer;
  bytesPerSecond: number;
}

/** Connections that do nothing but read. */
export interface Reading {
  port: number;
  connections: number;
  /** The handshake that each writes. */
  text: string;
  /** How many bytes after the handshake are awaited. */
  bytes: number;
}

/** An attacker. One thing at a time. */
export interface Attacker extends AsyncDisposable {
  /** Begins a flood; resolves when all its connections are open. */
  start(flood: Flood): Promise<void>;
  pause(): Promise<void>;
  goOn(): Promise<void>;
  /** Ends the flood. */
  stop(): Promise<Damage>;
  /** Begins a flood of bytes; resolves when its connection is open. */
  pour(pour: Pour): Promise<void>;
  /** Ends that flood, and says how much was written over how many connections. */
  stopPouring(): Promise<{ bytes: number; opened: number }>;
  /** Opens connections that read; resolves when all are open. */
  read(reading: Reading): Promise<void>;
  /** Resolves when each of them has all bytes or is closed, with how many it has. */
  allRead(): Promise<number[]>;
  /** Resolves when all connections are closed, with how many were answered how. */
  knock(knock: Knock): Promise<Record<string, number>>;
}

/** Starts the process. Disposing of it ends it. */
export async function attacker(): Promise<Attacker> {
  const child = fork(SCRIPT, { execArgv: [] });
  const exited = once(child, "exit");
  await once(child, "spawn");
  const ask = async <T>(command: string, options: object = {}): Promise<T> => {
    const answered = once(child, "message");
    child.send({ command, options });
    const [{ result, failure }] = (await answered) as [{ result: T; failure?: string }];
    if (failure !== undefined) throw new Error(failure);
    return result;
  };
  return {
    start: (flood) => ask("start", flood),
    pause: () => ask("pause"),
    goOn: () => ask("goOn"),
    stop: () => ask("stop"),
    pour: ({ first, chunk, ...pour }) =>
      ask("pour", { ...pour, first: first.toString("base64"), chunk: chunk.toString("base64") }),
    stopPouring: () => ask("stopPouring"),
    read: (reading) => ask("read", reading),
    allRead: () => ask("allRead"),
    knock: (knock) => ask("knock", knock),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
