/**
 * A session with a language server: a client of its protocol, over a reciproc session to the demo's server, which runs it. So the
 * language server survives a loss of the network. Both sides call: the editor requests completions, the server requests settings.
 */
import { lsp, open, type Caller, type Peer } from "reciproc";
import type { ChangeSet, Text } from "@codemirror/state";
import type {
  CompletionItem,
  CompletionList,
  Diagnostic,
  Hover,
  Language,
  LanguageClient,
  LanguageServer,
  Position,
  TextChange,
} from "../../lsp.js";
import { inWords } from "../notice.js";
import { around } from "../traffic.js";
import { wire } from "../wire.js";
import { positionAt } from "./positions.js";
import { schema } from "./schema.js";

/** The state of the language server. While its session is `suspended`, the server keeps running, with the text. */
export type Status = { state: "preparing" | "starting" | "ready" | "suspended" } | { state: "stopped"; why: string };

/** The part of the editor that the session calls. */
export interface Editor {
  readonly document: string;
  readonly language: Language;
  /** Resolves when the language server can be started. */
  prepare(): Promise<void>;
  /** Returns the present text. */
  text(): Text;
  /** Takes a new state of the language server. */
  turned(status: Status): void;
  /** Takes all diagnostics of the text; `undefined` if there are none any more, because the language server is gone. */
  diagnosed(diagnostics: readonly Diagnostic[] | undefined): void;
}

/** All properties of CSS with their documentation exceed the default limit of 1 MiB. */
const MAX_MESSAGE_BYTES = 8 * 2 ** 20;
const CALL_TIMEOUT_MS = 10_000;

const CAPABILITIES = {
  workspace: { configuration: true },
  textDocument: {
    completion: { completionItem: { snippetSupport: true, documentationFormat: ["markdown", "plaintext"] } },
    hover: { contentFormat: ["markdown", "plaintext"] },
    publishDiagnostics: {},
  },
};

/** The settings that the servers request by `workspace/configuration`. A misspelt property is an error, and not only a warning. */
const SETTINGS = new Map<string | undefined, object>([
  ["css", { validate: true, lint: { unknownProperties: "error" } }],
]);
const JSON_SETTINGS = { json: { validate: { enable: true }, schemas: [{ fileMatch: ["server.json"], schema }] } };

export class LanguageSession {
  readonly #editor: Editor;
  #peer: Peer<LanguageClient, LanguageServer> | undefined;
  #status: Status = { state: "stopped", why: "not started" };
  /** Whether the language server of this connection has the text. */
  #isOpened = false;
  #version = 0;
  #triggers: readonly string[] = [];

  constructor(editor: Editor) {
    this.#editor = editor;
  }

  /** The characters after which completions are requested. */
  get triggers(): readonly string[] {
    return this.#triggers;
  }

  /** Starts a language server for this page, unless it runs. Reports every failure as the status, also a later one. */
  start(): void {
    if (this.#status.state !== "stopped") return;
    this.#turn({ state: "preparing" });
    this.#editor.prepare().then(
      () => this.#open(),
      (error: unknown) => this.#turn({ state: "stopped", why: inWords(error) }),
    );
  }

  /** Connects now, if the connection is lost. */
  reconnect(): void {
    this.#peer?.reconnect();
  }

  #open(): void {
    this.#turn({ state: "starting" });
    const peer = open<LanguageServer, LanguageClient>(wire(`/lsp/${this.#editor.language}`), {
      dialect: lsp,
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES },
      reconnect: { initial: true },
      // A restarted demo has a new language server, which knows nothing of this page.
      onOpen: (server) => this.#initialize(server),
      around,
      methods: {
        "workspace/configuration": ({ items }) => items.map(({ section }) => SETTINGS.get(section) ?? {}),
        "textDocument/publishDiagnostics": ({ diagnostics }) => this.#editor.diagnosed(diagnostics),
        "window/logMessage": () => {},
      },
    });
    this.#peer = peer;
    peer.on("suspend", () => this.#turn({ state: "suspended" }));
    peer.on("lost", () => this.#forget());
    peer.on("resume", () => this.#turn({ state: "ready" }));
    // The peer of the language server reports its errors by the state, and by what the calls return.
    peer.on("error", () => {});
    peer.opened.then(
      () => this.#turn({ state: "ready" }),
      () => {},
    );
    void peer.closed.then(({ code, reason }) => {
      this.#forget();
      this.#peer = undefined;
      this.#turn({ state: "stopped", why: reason || `the connection ended with ${code}` });
    });
  }

  /** Notifies the server of the changes to the text `before`. */
  change(changes: ChangeSet, before: Text): void {
    const edits: TextChange[] = [];
    changes.iterChanges((from, to, _fromB, _toB, inserted) => {
      const range = { start: positionAt(before, from), end: positionAt(before, to) };
      // The last change first, so that no change moves the range of another.
      edits.unshift({ range, text: inserted.toString() });
    });
    this.#change(edits);
  }

  /** Notifies the server of a new text. */
  replace(): void {
    this.#change([{ text: this.#editor.text().toString() }]);
  }

  /**
   * Returns the completions at an offset. Returns none if the call fails, because an error message would disturb typing. When
   * `signal` aborts, cancels the call.
   */
  complete(position: Position, signal: AbortSignal): Promise<CompletionItem[] | CompletionList | null> {
    const options = { timeoutMs: CALL_TIMEOUT_MS, signal };
    return this.#ask((peer) =>
      peer.request("textDocument/completion", { textDocument: this.#document, position }, options),
    );
  }

  /** Returns the hover text at an offset. */
  hover(position: Position): Promise<Hover | null> {
    return this.#ask((peer) =>
      peer.request("textDocument/hover", { textDocument: this.#document, position }, { timeoutMs: CALL_TIMEOUT_MS }),
    );
  }

  get #document(): { uri: string } {
    return { uri: `file:///${this.#editor.document}` };
  }

  /** Begins the protocol on a new connection. Returns the promise of its end, before which no other message is sent. */
  async #initialize(server: Caller<LanguageServer>): Promise<void> {
    const { capabilities } = await server.request("initialize", {
      processId: null,
      rootUri: null,
      capabilities: CAPABILITIES,
    });
    this.#triggers = capabilities.completionProvider?.triggerCharacters ?? [];
    server.notify("initialized", {});
    const { language: languageId } = this.#editor;
    if (languageId === "json") server.notify("workspace/didChangeConfiguration", { settings: JSON_SETTINGS });
    const text = this.#editor.text().toString();
    server.notify("textDocument/didOpen", {
      textDocument: { ...this.#document, languageId, version: ++this.#version, text },
    });
    this.#isOpened = true;
    // The CSS server never checks a change that comes while it waits for its settings. Before it answers this, it requests them.
    if (languageId === "css")
      await server.request("textDocument/hover", { textDocument: this.#document, position: { line: 0, character: 0 } });
  }

  #change(contentChanges: TextChange[]): void {
    if (contentChanges.length === 0 || !this.#isOpened) return;
    this.#peer?.notify("textDocument/didChange", {
      textDocument: { ...this.#document, version: ++this.#version },
      contentChanges,
    });
  }

  async #ask<T>(question: (peer: Peer<LanguageClient, LanguageServer>) => Promise<T>): Promise<T | null> {
    // The traffic list shows the failure, and the status shows the end of the server.
    return this.#peer === undefined ? null : question(this.#peer).catch(() => null);
  }

  /** The language server is gone, with the text that it had. */
  #forget(): void {
    this.#isOpened = false;
    this.#editor.diagnosed(undefined);
  }

  #turn(status: Status): void {
    this.#status = status;
    this.#editor.turned(status);
  }
}
