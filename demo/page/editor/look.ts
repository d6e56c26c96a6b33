/** The theme and the keys of the editor. The editor uses the colours of the page, in both schemes. */
import { acceptCompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { css } from "@codemirror/lang-css";
import { json } from "@codemirror/lang-json";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap } from "@codemirror/lint";
import { EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, tooltips } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Language } from "../../lsp.js";

const GRAMMARS: Readonly<Record<Language, () => Extension>> = { css, json };

const highlighting = HighlightStyle.define([
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.bracket], color: "var(--soft)" },
  { tag: [tags.propertyName, tags.attributeName], color: "var(--code-name)" },
  { tag: [tags.className, tags.tagName, tags.labelName], color: "var(--code-selector)" },
  { tag: [tags.keyword, tags.definitionKeyword, tags.modifier, tags.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.color, tags.url], color: "var(--code-text)" },
  { tag: [tags.number, tags.unit, tags.bool, tags.null, tags.atom], color: "var(--code-value)" },
]);

/** A tooltip stays in the editor, and does not touch its edges. */
const MARGIN = 10;

/** Returns the extensions of every file. A screen reader reads `name`. */
export function look(language: Language, name: string): Extension {
  return [
    lineNumbers(),
    history(),
    drawSelection(),
    EditorState.allowMultipleSelections.of(true),
    indentOnInput(),
    bracketMatching(),
    closeBrackets(),
    highlightActiveLine(),
    EditorView.lineWrapping,
    tooltips({
      tooltipSpace: ({ dom }) => {
        const { top, left, bottom, right } = dom.getBoundingClientRect();
        return { top, left: left + MARGIN, bottom: Math.min(bottom, innerHeight) - MARGIN, right: right - MARGIN };
      },
    }),
    EditorView.contentAttributes.of({ "aria-label": name, tabindex: "0" }),
    GRAMMARS[language](),
    syntaxHighlighting(highlighting),
    // Tab moves to the next part of the page, as on any page, unless a completion can be accepted.
    keymap.of([
      { key: "Tab", run: acceptCompletion },
      ...closeBracketsKeymap,
      ...completionKeymap,
      ...lintKeymap,
      ...historyKeymap,
      ...defaultKeymap,
    ]),
  ];
}
