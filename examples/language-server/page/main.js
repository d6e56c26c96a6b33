/** An editor of a stylesheet. A language server checks it, completes what the user types, and explains properties. */
import { autocompletion } from "@codemirror/autocomplete";
import { css } from "@codemirror/lang-css";
import { setDiagnostics } from "@codemirror/lint";
import { EditorView, hoverTooltip } from "@codemirror/view";
import { basicSetup } from "codemirror";
import { lsp, open } from "reciproc";
import { offsetAt, positionAt } from "./positions.js";

const textDocument = { uri: "file:///page.css" };
let version = 0;

const view = new EditorView({
  parent: document.querySelector("main"),
  doc: "body {\n  colr: red;\n}\n",
  extensions: [
    basicSetup,
    css(),
    autocompletion({ override: [complete] }),
    hoverTooltip(explain),
    EditorView.contentAttributes.of({ "aria-label": "Stylesheet" }),
    EditorView.updateListener.of((update) => update.docChanged && sendChanges(update)),
  ],
});

const peer = open(addressOfBridge, {
  reconnect: { initial: true },
  link: "plain", // the language server speaks JSON-RPC only
  dialect: lsp, // a call whose signal aborts is cancelled in the language server
  methods: {
    "textDocument/publishDiagnostics"({ diagnostics, version: of = version }) {
      if (of !== version) return; // they are of an older text, and newer ones follow
      const { doc } = view.state;
      const marks = diagnostics.map(({ range, message, severity }) => ({
        from: offsetAt(doc, range.start),
        to: offsetAt(doc, range.end),
        severity: severity === 1 ? "error" : "warning",
        message,
      }));
      view.dispatch(setDiagnostics(view.state, marks));
    },
  },
  // On each connection there is a new language server, which knows nothing of the text.
  async onOpen(server) {
    // Without `workspace.configuration`, because the CSS server never checks a change that comes while it waits for its settings.
    await server.request("initialize", { processId: null, rootUri: null, capabilities: {} });
    server.notify("initialized", {});
    const text = view.state.doc.toString();
    server.notify("textDocument/didOpen", {
      textDocument: { ...textDocument, languageId: "css", version: ++version, text },
    });
  },
});

/** Returns where the bridge listens now. The client calls it for each connection attempt. */
async function addressOfBridge() {
  return (await fetch("/bridge")).text();
}

/** Sends the ranges that have changed. */
function sendChanges({ changes, startState }) {
  // While the page is not connected, nothing is queued: `onOpen` sends the whole text.
  if (peer.state !== "open") return;
  const contentChanges = [];
  changes.iterChanges((from, to, _from, _to, text) => {
    const range = { start: positionAt(startState.doc, from), end: positionAt(startState.doc, to) };
    // From the end of the text to its beginning, so that the earlier positions are those of the old text.
    contentChanges.unshift({ range, text: text.toString() });
  });
  peer.notify("textDocument/didChange", { textDocument: { ...textDocument, version: ++version }, contentChanges });
}

async function complete(context) {
  const word = context.matchBefore(/[\w-]+/);
  if (word === null && !context.explicit) return null;
  const stop = new AbortController();
  context.addEventListener("abort", () => stop.abort());
  const position = positionAt(context.state.doc, context.pos);
  const { items } = await peer.request("textDocument/completion", { textDocument, position }, { signal: stop.signal });
  return {
    from: word?.from ?? context.pos,
    options: items.map(({ label, documentation }) => ({ label, info: documentation?.value ?? documentation })),
    validFor: /^[\w-]*$/,
  };
}

async function explain({ state }, pos) {
  const hover = await peer.request("textDocument/hover", { textDocument, position: positionAt(state.doc, pos) });
  if (hover === null) return null;
  const contents = [hover.contents].flat().map((content) => content.value ?? content);
  const dom = document.createElement("div");
  dom.textContent = contents.join("\n");
  return { pos: offsetAt(state.doc, hover.range?.start ?? positionAt(state.doc, pos)), create: () => ({ dom }) };
}

const status = (text) => () => (document.querySelector("[role=status]").textContent = text);
peer.opened.then(status("connected"), () => {});
peer.on("suspend", status("connecting again"));
peer.on("resume", status("connected"));
peer.on("error", ({ message }) => console.warn(message)); // such as an attempt while the server is restarted
