/**
 * A session with a language server: a client of its protocol on a reciproc peer. The link is plain, because a language server does
 * not know reciproc. Both sides call: the editor requests completions, the server requests settings. The dialect is the protocol's
 * spelling of a cancel.
 */
import { connect, ConnectionLostError, lsp, type Peer } from "reciproc";
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
import { around } from "../traffic.js";
import { wire } from "../wire.js";
import { positionAt } from "./positions.js";
import { schema } from "./schema.js";

/** The state of the language server. */
export type Status = { state: "starting" | "ready" } | { state: "stopped"; why: string };

/** The part of the editor that the session calls. */
export interface Editor {
  readonly document: string;
  readonly language: Language;
  /** Returns the present text. */
  text(): Text;
  /** Takes a new state of the language server. */
  turned(status: Status): void;
  /** Takes all diagnostics of the text. */
  diagnosed(diagnostics: readonly Diagnostic[]): void;
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
  /** The peer of the language server; `undefined` without a connection. */
  #current: Peer<LanguageClient, LanguageServer> | undefined;
  /** The same peer, as soon as the server is ready. */
  #peer: Peer<LanguageClient, LanguageServer> | undefined;
  #status: Status = { state: "stopped", why: "not started" };
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
  async start(): Promise<void> {
    if (this.#status.state !== "stopped") return;
    this.#turn({ state: "starting" });
    const peer = await this.#connect().catch(() => undefined);
    this.#current = peer;
    if (peer === undefined) return this.#stop(peer, "it cannot be reached");
    void peer.closed.then(({ code, reason }) => this.#stop(peer, [code, reason].filter(Boolean).join(": ")));
    try {
      await this.#initialize(peer);
    } catch (error) {
      // A peer that has ended reports the reason by its `close` event.
      if (error instanceof ConnectionLostError) return;
      this.#stop(peer, String(error));
      void peer.close();
    }
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

  #connect(): Promise<Peer<LanguageClient, LanguageServer>> {
    return connect<LanguageServer, LanguageClient>(wire(`/lsp/${this.#editor.language}`), {
      link: "plain",
      dialect: lsp,
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES },
      around,
      methods: {
        "workspace/configuration": ({ items }) => items.map(({ section }) => SETTINGS.get(section) ?? {}),
        "textDocument/publishDiagnostics": ({ diagnostics }) => this.#editor.diagnosed(diagnostics),
        "window/logMessage": () => {},
      },
    });
  }

  async #initialize(peer: Peer<LanguageClient, LanguageServer>): Promise<void> {
    const { capabilities } = await peer.request("initialize", {
      processId: null,
      rootUri: null,
      capabilities: CAPABILITIES,
    });
    this.#triggers = capabilities.completionProvider?.triggerCharacters ?? [];
    peer.notify("initialized", {});
    const { language: languageId } = this.#editor;
    if (languageId === "json") peer.notify("workspace/didChangeConfiguration", { settings: JSON_SETTINGS });
    const text = this.#editor.text().toString();
    peer.notify("textDocument/didOpen", {
      textDocument: { ...this.#document, languageId, version: ++this.#version, text },
    });
    this.#peer = peer;
    this.#turn({ state: "ready" });
  }

  #change(contentChanges: TextChange[]): void {
    if (contentChanges.length === 0) return;
    this.#peer?.notify("textDocument/didChange", {
      textDocument: { ...this.#document, version: ++this.#version },
      contentChanges,
    });
  }

  async #ask<T>(question: (peer: Peer<LanguageClient, LanguageServer>) => Promise<T>): Promise<T | null> {
    // The traffic list shows the failure, and the status shows the end of the server.
    return this.#peer === undefined ? null : question(this.#peer).catch(() => null);
  }

  /** Reports the end of a peer as the status, unless a new peer has taken its place. */
  #stop(peer: Peer<LanguageClient, LanguageServer> | undefined, why: string): void {
    if (this.#status.state === "stopped" || peer !== this.#current) return;
    this.#current = this.#peer = undefined;
    this.#editor.diagnosed([]);
    this.#turn({ state: "stopped", why });
  }

  #turn(status: Status): void {
    this.#status = status;
    this.#editor.turned(status);
  }
}
