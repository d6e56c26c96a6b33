/**
 * The part of the Language Server Protocol 3.17 that the editor uses, as two contracts. Types only. The names are the
 * protocol's own: to reciproc a language server is one more peer that speaks JSON-RPC 2.0.
 */
import type { CompletionItem, CompletionList, Diagnostic, Hover, Position, Range } from "vscode-languageserver-types";

export type { CompletionItem, CompletionList, Diagnostic, Hover, Position, Range };

/** The languages there are servers for. */
export type Language = "css" | "json";

interface Place {
  textDocument: { uri: string };
  position: Position;
}

/** What a language server serves. */
export interface LanguageServer {
  initialize(params: InitializeParams): InitializeResult;
  initialized(params: {}): void;
  "workspace/didChangeConfiguration"(params: { settings: unknown }): void;
  "textDocument/didOpen"(params: {
    textDocument: { uri: string; languageId: Language; version: number; text: string };
  }): void;
  "textDocument/didChange"(params: {
    textDocument: { uri: string; version: number };
    contentChanges: TextChange[];
  }): void;
  "textDocument/completion"(params: Place): CompletionItem[] | CompletionList | null;
  "textDocument/hover"(params: Place): Hover | null;
}

/** What the editor serves to it. */
export interface LanguageClient {
  /** Asks for settings; answered with one value for each item. */
  "workspace/configuration"(params: { items: { section?: string }[] }): unknown[];
  "textDocument/publishDiagnostics"(params: { uri: string; diagnostics: Diagnostic[] }): void;
  "window/logMessage"(params: { type: number; message: string }): void;
}

/** New text for a range, or, without one, for all. */
export interface TextChange {
  range?: Range;
  text: string;
}

export interface InitializeParams {
  processId: null;
  rootUri: null;
  capabilities: object;
}

export interface InitializeResult {
  capabilities: { completionProvider?: { triggerCharacters?: string[] } };
}
