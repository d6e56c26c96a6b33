/** The editor: its files, who is in which, and what the language servers say. Loaded when somebody first goes there. */
import { diagnosticCount, nextDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import type { Params, Peer } from "reciproc";
import type { Caret, ClientApi, DocumentName, Person, ServerApi } from "../../api.js";
import type { Language } from "../../lsp.js";
import { byId, element } from "../dom.js";
import { tablist } from "../tablist.js";
import { whoIsIn } from "./carets.js";
import { language, showDiagnostics } from "./language.js";
import { look } from "./look.js";
import { LanguageSession, type Status } from "./session.js";
import { SharedText } from "./shared.js";

const state = byId("language-state", HTMLElement);
const restart = byId("restart", HTMLButtonElement);
const problems = byId("problems", HTMLButtonElement);
const place = byId("place", HTMLElement);

/** A file: its tab, its text, and its language server. */
class OpenFile {
  readonly name: DocumentName;
  readonly shared: SharedText;
  readonly session: LanguageSession;
  readonly language: Language;
  readonly #tab: HTMLElement;
  readonly #parent = element("div", "file");
  #status: Status = { state: "starting" };

  constructor(tab: HTMLButtonElement, panel: HTMLElement) {
    this.name = tab.value as DocumentName;
    this.language = this.name.split(".").at(-1) as Language;
    this.#tab = tab;
    this.#parent.hidden = true;
    panel.append(this.#parent);
    this.session = new LanguageSession({
      document: this.name,
      language: this.language,
      text: () => this.shared.view.state.doc,
      turned: (status) => {
        this.#status = status;
        this.showStatus();
      },
      diagnosed: (diagnostics) => showDiagnostics(this.shared.view, diagnostics),
    });
    const extensions = [
      look(this.language, this.name),
      language(this.session),
      EditorView.updateListener.of(() => {
        this.showStatus();
        this.#showPeople();
      }),
    ];
    this.shared = new SharedText(this.name, this.#parent, extensions, () => this.session.replace());
  }

  get isShown(): boolean {
    return !this.#parent.hidden;
  }

  /** Shows it, or hides it. When it is first shown its language server starts. */
  show(isShown: boolean): void {
    this.#parent.hidden = !isShown;
    if (!isShown) return;
    void this.session.start();
    this.shared.view.requestMeasure();
    this.showStatus();
  }

  /** Who else is in it, as dots in its tab. */
  #showPeople(): void {
    const dots = whoIsIn(this.shared.view.state).map(({ name, color }) => {
      const dot = element("span", "dot");
      dot.style.setProperty("--c", `var(--${color})`);
      dot.title = `${name} is here`;
      return dot;
    });
    this.#tab.querySelector(".there")!.replaceChildren(...dots);
  }

  /** How it stands with its language server, and with the caret. */
  showStatus(): void {
    const { state: editor } = this.shared.view;
    const count = diagnosticCount(editor);
    this.#tab.querySelector(".badge")!.textContent = count > 0 ? String(count) : "";
    if (!this.isShown) return;
    const { head } = editor.selection.main;
    const line = editor.doc.lineAt(head);
    place.textContent = `Ln ${line.number}, Col ${head - line.from + 1}`;
    // One that is gone while the network is gone comes back with it: nothing to alarm anybody, and nothing to press.
    const isAwaited = isAway && this.#status.state === "stopped";
    write(state, `${this.language} language server: ${isAwaited ? "reconnecting" : describe(this.#status)}`);
    state.dataset["state"] = isAwaited ? "starting" : this.#status.state;
    restart.hidden = isAwaited || this.#status.state !== "stopped";
    problems.hidden = this.#status.state !== "ready";
    problems.textContent = count === 0 ? "No problems" : `${count} ${count === 1 ? "problem" : "problems"}`;
    problems.disabled = count === 0;
  }
}

function describe(status: Status): string {
  return status.state === "stopped" ? `stopped (${status.why})` : status.state;
}

/** A status that is written again is read out again. */
function write(into: HTMLElement, text: string): void {
  if (into.textContent !== text) into.textContent = text;
}

let isAway = false;
const panel = byId("file", HTMLElement);
const files = [...byId("files", HTMLElement).querySelectorAll("button")].map((tab) => new OpenFile(tab, panel));

/** Opens every file: at first, and over each new connection. */
export function enter(server: Peer<ClientApi, ServerApi>): void {
  for (const { shared } of files) void shared.join(server);
}

/** The network is gone. */
export function away(): void {
  isAway = true;
  shown().showStatus();
}

/** The network is back: the language server of the file that is shown begins anew, if it is gone. */
export function back(): void {
  isAway = false;
  if (shown().isShown) void shown().session.start();
}

/** Takes what somebody changed. */
export function edited(edit: Params<ClientApi["edited"]>): void {
  fileOf(edit.document)?.shared.receive(edit);
}

/** Takes where somebody is. */
export function pointed(caret: Caret): void {
  for (const { shared } of files) shared.point(caret);
}

/** Takes who is here now, `you` among them. */
export function meet(people: readonly Person[], you: string): void {
  const others = new Map(people.filter(({ id }) => id !== you).map((person) => [person.id, person]));
  for (const { shared } of files) shared.meet(others);
}

function fileOf(name: string): OpenFile | undefined {
  return files.find((file) => file.name === name);
}

function shown(): OpenFile {
  return files.find(({ isShown }) => isShown) ?? files[0]!;
}

tablist(byId("files", HTMLElement), byId("css-tab", HTMLButtonElement), (tab) => {
  for (const file of files) file.show(file.name === tab.value);
});
restart.addEventListener("click", () => void shown().session.start());
problems.addEventListener("click", () => {
  nextDiagnostic(shown().shared.view);
  shown().shared.view.focus();
});
