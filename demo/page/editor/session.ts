/**
 * A session with a language server: a client of its protocol on a reciproc peer, plain because a language server has never
 * heard of reciproc. Both sides call: this one asks what completes a word, the other one asks for settings. The dialect says
 * how a language server is told that a call is given up.
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

/** How it stands with the language server. */
export type Status = { state: "starting" | "ready" } | { state: "stopped"; why: string };

/** What a session needs of its editor, and tells it. */
export interface Editor {
  readonly document: string;
  readonly language: Language;
  /** The text as it is now. */
  text(): Text;
  /** How it stands from now on. */
  turned(status: Status): void;
  /** What is wrong with the text; always all of it. */
  diagnosed(diagnostics: readonly Diagnostic[]): void;
}

/** With documentation, all properties of CSS together are more than the usual limit of 1 MiB. */
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

/** What the servers ask for by `workspace/configuration`. A misspelt property is an error here, not only a warning. */
const SETTINGS = new Map<string | undefined, object>([
  ["css", { validate: true, lint: { unknownProperties: "error" } }],
]);
const JSON_SETTINGS = { json: { validate: { enable: true }, schemas: [{ fileMatch: ["server.json"], schema }] } };

export class LanguageSession {
  readonly #editor: Editor;
  /** `undefined` unless there is a connection. */
  #current: Peer<LanguageClient, LanguageServer> | undefined;
  /** The same, once the server is ready. */
  #peer: Peer<LanguageClient, LanguageServer> | undefined;
  #status: Status = { state: "stopped", why: "not started" };
  #version = 0;
  #triggers: readonly string[] = [];

  constructor(editor: Editor) {
    this.#editor = editor;
  }

  /** The characters after which completions are worth a call. */
  get triggers(): readonly string[] {
    return this.#triggers;
  }

  /** Starts a language server of this page's own, unless there is one. What goes wrong, now or later, is told as the status. */
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
      // One that has ended tells why by that.
      if (error instanceof ConnectionLostError) return;
      this.#stop(peer, String(error));
      void peer.close();
    }
  }

  /** Tells the server what changed in the text that was `before`. */
  change(changes: ChangeSet, before: Text): void {
    const edits: TextChange[] = [];
    changes.iterChanges((from, to, _fromB, _toB, inserted) => {
      const range = { start: positionAt(before, from), end: positionAt(before, to) };
      // The last one first: so none moves what another one names.
      edits.unshift({ range, text: inserted.toString() });
    });
    this.#change(edits);
  }

  /** Tells the server that the text is another one now. */
  replace(): void {
    this.#change([{ text: this.#editor.text().toString() }]);
  }

  /**
   * What could stand at that place. Nothing when there is no answer: nobody types on for an error message. When `signal`
   * aborts, the server is told that nobody waits any more.
   */
  complete(position: Position, signal: AbortSignal): Promise<CompletionItem[] | CompletionList | null> {
    const options = { timeoutMs: CALL_TIMEOUT_MS, signal };
    return this.#ask((peer) =>
      peer.request("textDocument/completion", { textDocument: this.#document, position }, options),
    );
  }

  /** What there is to say about what stands at that place. */
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
    // What went wrong stands in the traffic, and in the status when the server is gone.
    return this.#peer === undefined ? null : question(this.#peer).catch(() => null);
  }

  /** Something ended: what there is now, unless that is another one already. */
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
