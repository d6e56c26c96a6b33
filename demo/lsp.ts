/**
 * The part of the Language Server Protocol 3.17 that the editor uses, as two contracts. Types only. The names are the
 * protocol's own: to reciproc a language server is one more peer that speaks JSON-RPC 2.0.
 */
import type { CompletionItem, CompletionList, Diagnostic, Hover, Position, Range } from "vscode-languageserver-types";

export type { CompletionItem, CompletionList, Diagnostic, Hover, Position, Range };

/** The languages that have a server. */
export type Language = "css" | "json";

interface Place {
  textDocument: { uri: string };
  position: Position;
}

/** The methods of a language server. */
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

/** The methods that the editor serves to a language server. */
export interface LanguageClient {
  /** Returns the settings: one value for each item. */
  "workspace/configuration"(params: { items: { section?: string }[] }): unknown[];
  "textDocument/publishDiagnostics"(params: { uri: string; diagnostics: Diagnostic[] }): void;
  "window/logMessage"(params: { type: number; message: string }): void;
}

/** New text for a range; without a range, for the whole document. */
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
