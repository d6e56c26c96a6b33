/** The diagnostics, completions and hover texts of a language server, in the editor. */
import {
  autocompletion,
  insertCompletionText,
  pickedCompletion,
  snippet,
  startCompletion,
  type Completion,
  type CompletionContext,
  type CompletionResult,
} from "@codemirror/autocomplete";
import { lintGutter, setDiagnostics, type Diagnostic as Squiggle } from "@codemirror/lint";
import type { EditorState, Extension } from "@codemirror/state";
import { EditorView, hoverTooltip, type Tooltip } from "@codemirror/view";
import type { CompletionItem, Diagnostic } from "../../lsp.js";
import { element } from "../dom.js";
import { rendered } from "./markdown.js";
import { offsetAt, positionAt } from "./positions.js";
import type { LanguageSession } from "./session.js";
import { templateOf } from "./snippet.js";

/** The part of the editor that the session calls. */
export function language(session: LanguageSession): Extension {
  return [
    lintGutter(),
    autocompletion({
      override: [(context) => complete(session, context)],
      icons: false,
      addToOptions: [{ render: swatch, position: 20 }],
    }),
    hoverTooltip((view, pos) => hover(session, view.state, pos), { hideOnChange: true }),
    EditorView.updateListener.of(({ docChanged, changes, startState }) => {
      if (docChanged) session.change(changes, startState.doc);
    }),
  ];
}

const SEVERITIES = ["error", "warning", "info", "hint"] as const;

/** Replaces all diagnostics of the text. */
export function showDiagnostics(view: EditorView, diagnostics: readonly Diagnostic[]): void {
  const { doc } = view.state;
  const squiggles = diagnostics.map(({ range, severity = 1, message, source }): Squiggle => {
    const from = offsetAt(doc, range.start);
    const text = typeof message === "string" ? message : message.value;
    const shown = {
      severity: SEVERITIES[severity - 1] ?? "error",
      message: text,
      ...(source !== undefined && { source }),
    };
    return { from, to: Math.max(from, offsetAt(doc, range.end)), ...shown };
  });
  view.dispatch(setDiagnostics(view.state, squiggles));
}

async function hover(session: LanguageSession, { doc }: EditorState, pos: number): Promise<Tooltip | null> {
  const found = await session.hover(positionAt(doc, pos));
  const dom = found === null ? undefined : rendered(found.contents);
  if (dom === undefined) return null;
  const { start, end } = found?.range ?? {};
  return {
    pos: start === undefined ? pos : offsetAt(doc, start),
    end: end === undefined ? pos : offsetAt(doc, end),
    above: true,
    create: () => ({ dom }),
  };
}

/** The first response is valid while the person types the same word. */
const WORD = /^["\w-]*$/;

async function complete(session: LanguageSession, context: CompletionContext): Promise<CompletionResult | null> {
  const { state, pos, explicit } = context;
  const before = state.sliceDoc(Math.max(0, pos - 1), pos);
  if (!explicit && !/[\w"]/.test(before) && !session.triggers.includes(before)) return null;
  const abandoned = new AbortController();
  context.addEventListener("abort", () => abandoned.abort());
  const answer = await session.complete(positionAt(state.doc, pos), abandoned.signal);
  if (answer === null || context.aborted) return null;
  const { items, isIncomplete } = Array.isArray(answer) ? { items: answer, isIncomplete: false } : answer;
  const starts = items.map((item) => startOf(item, state, context));
  const from = Math.min(pos, ...starts);
  const options = items.map((item, i) => option(item, state, pos, from, starts[i]!));
  return { from, options, ...(!isIncomplete && { validFor: WORD }) };
}

function startOf({ textEdit }: CompletionItem, { doc }: EditorState, context: CompletionContext): number {
  if (textEdit === undefined) return context.matchBefore(/[\w-]+/)?.from ?? context.pos;
  return offsetAt(doc, "range" in textEdit ? textEdit.range.start : textEdit.replace.start);
}

/** Renders a completion. A colour is shown before its name. */
interface Option extends Completion {
  color?: string;
}

/** Returns an item as a completion of CodeMirror. All items of a list begin at `from`. An item that begins later keeps the text between. */
function option(item: CompletionItem, state: EditorState, pos: number, from: number, start: number): Option {
  const { label, filterText = label, sortText, detail, documentation, textEdit, kind } = item;
  const text = textEdit?.newText ?? item.insertText ?? label;
  const kept = start - from;
  // The text behind the caret that is replaced too.
  const behind =
    textEdit !== undefined && "range" in textEdit ? Math.max(0, offsetAt(state.doc, textEdit.range.end) - pos) : 0;
  return {
    label: state.sliceDoc(from, start) + filterText,
    displayLabel: label,
    ...(sortText !== undefined && { sortText }),
    ...(detail !== undefined && { detail }),
    ...(kind === COLOR && typeof documentation === "string" && { color: documentation }),
    ...(documentation !== undefined && { info: () => rendered(marked(documentation)) ?? null }),
    apply(view, completion, first, last) {
      const [begin, end] = [first + kept, Math.min(last + behind, view.state.doc.length)];
      if (item.insertTextFormat === SNIPPET) snippet(templateOf(text))(view, completion, begin, end);
      else {
        const inserted = insertCompletionText(view.state, text, begin, end);
        view.dispatch({ ...inserted, annotations: pickedCompletion.of(completion) });
      }
      if (item.command?.command === "editor.action.triggerSuggest") startCompletion(view);
    },
  };
}

/** `InsertTextFormat.Snippet` and `CompletionItemKind.Color`. */
const SNIPPET = 2;
const COLOR = 16;

/** In a completion, a bare string is not Markdown. In a hover it is. */
function marked(documentation: NonNullable<CompletionItem["documentation"]>): Exclude<typeof documentation, string> {
  return typeof documentation === "string" ? { kind: "plaintext", value: documentation } : documentation;
}

/** Returns an element that shows a colour. */
function swatch({ color }: Option): Node | null {
  if (color === undefined) return null;
  const square = element("span", "swatch");
  square.style.backgroundColor = color;
  return square;
}
