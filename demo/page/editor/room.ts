/** The editor: its files, the people in each file, and the language servers. Loaded when the person first opens it. */
import { diagnosticCount, nextDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { ConnectionLostError, type Params, type Peer } from "reciproc";
import type { Caret, ClientApi, DocumentName, Person, ServerApi } from "../../api.js";
import type { Language } from "../../lsp.js";
import { byId, element } from "../dom.js";
import { whoIsIn } from "./carets.js";
import { language, showDiagnostics } from "./language.js";
import { look } from "./look.js";
import { LanguageSession, type Status } from "./session.js";
import { SharedText } from "./shared.js";

const state = byId("language-state", HTMLElement);
const restart = byId("restart", HTMLButtonElement);
const problems = byId("problems", HTMLButtonElement);
const place = byId("place", HTMLElement);

/** A file with its tab, its text and its language server. */
class OpenFile {
  readonly name: DocumentName;
  readonly shared: SharedText;
  readonly session: LanguageSession;
  readonly language: Language;
  readonly #tab: HTMLElement;
  readonly #parent = element("div", "file");
  #status: Status = { state: "preparing" };
  /** Whether the language server has reported on the text. Until then, the number of problems is unknown. */
  #isChecked = false;

  constructor(tab: HTMLButtonElement, panel: HTMLElement) {
    this.name = tab.value as DocumentName;
    this.language = this.name.split(".").at(-1) as Language;
    this.#tab = tab;
    this.#parent.hidden = true;
    panel.append(this.#parent);
    this.session = new LanguageSession({
      document: this.name,
      language: this.language,
      prepare,
      text: () => this.shared.view.state.doc,
      turned: (status) => {
        this.#status = status;
        this.showStatus();
      },
      diagnosed: (diagnostics) => {
        this.#isChecked = diagnostics !== undefined;
        showDiagnostics(this.shared.view, diagnostics ?? []);
        this.showStatus();
      },
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

  /** Shows or hides the file. Its language server starts when the file is first shown. */
  show(isShown: boolean): void {
    this.#parent.hidden = !isShown;
    if (!isShown) return;
    this.session.start();
    this.shared.view.requestMeasure();
    this.showStatus();
  }

  /** Shows the other people in the file as dots in its tab. */
  #showPeople(): void {
    const dots = whoIsIn(this.shared.view.state).map(({ name, color }) => {
      const dot = element("span", "dot");
      dot.style.setProperty("--c", `var(--${color})`);
      dot.title = `${name} is here`;
      return dot;
    });
    this.#tab.querySelector(".there")!.replaceChildren(...dots);
  }

  /** Shows the state of the language server, and the position of the caret. */
  showStatus(): void {
    const { state: editor } = this.shared.view;
    const count = diagnosticCount(editor);
    this.#tab.querySelector(".badge")!.textContent = count > 0 ? String(count) : "";
    if (!this.isShown) return;
    const { head } = editor.selection.main;
    const line = editor.doc.lineAt(head);
    place.textContent = `Ln ${line.number}, Col ${head - line.from + 1}`;
    write(state, `${this.language} language server: ${describe(this.#status)}`);
    state.dataset["state"] = this.#status.state;
    restart.hidden = this.#status.state !== "stopped";
    problems.hidden = this.#status.state !== "ready" && this.#status.state !== "suspended";
    const none = this.#isChecked ? "No problems" : "Checking …";
    problems.textContent = count === 0 ? none : `${count} ${count === 1 ? "problem" : "problems"}`;
    problems.disabled = count === 0;
  }
}

function describe(status: Status): string {
  if (status.state === "suspended") return "reconnecting";
  if (status.state === "preparing") return "being prepared";
  return status.state === "stopped" ? `stopped (${status.why})` : status.state;
}

/** Writes a status only if it has changed, because a screen reader reads each write. */
function write(into: HTMLElement, text: string): void {
  if (into.textContent !== text) into.textContent = text;
}

/** The server of the demo, once the editor is open. */
let server: Peer<ClientApi, ServerApi> | undefined;

/** Resolves when the server has installed the language servers. Calls again if the session is lost meanwhile. */
async function prepare(): Promise<void> {
  try {
    await server!.request("prepare", undefined, { timeoutMs: Infinity });
  } catch (error) {
    if (!(error instanceof ConnectionLostError) || server!.state === "closed") throw error;
    await prepare();
  }
}

const panel = byId("file", HTMLElement);
const files = [...byId("files", HTMLElement).querySelectorAll("button")].map((tab) => new OpenFile(tab, panel));

/** Shows the file of this name, and hides the others. */
export function show(name: string): void {
  for (const file of files) file.show(file.name === name);
}

/** Opens every file, on the first connection and on each new one. */
export function enter(peer: Peer<ClientApi, ServerApi>): void {
  server = peer;
  for (const { shared } of files) void shared.join(peer);
}

/** Connects the sessions of the language servers now, without the delay before their next attempts. */
export function reconnect(): void {
  for (const { session } of files) session.reconnect();
}

/** Takes the changes of a person. */
export function edited(edit: Params<ClientApi["edited"]>): void {
  fileOf(edit.document)?.shared.receive(edit);
}

/** Takes the position of a person. */
export function pointed(caret: Caret): void {
  for (const { shared } of files) shared.point(caret);
}

/** Takes the list of the people who are present, with `you`. */
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

restart.addEventListener("click", () => shown().session.start());
problems.addEventListener("click", () => {
  nextDiagnostic(shown().shared.view);
  shown().shared.view.focus();
});
