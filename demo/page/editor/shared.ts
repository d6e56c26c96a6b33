/**
 * One text that several people edit at once. What is typed here shows at once and goes to the server, which puts
 * everybody's changes in one order; CodeMirror's `collab` moves those that crossed on the way to where they belong.
 */
import { collab, getSyncedVersion, receiveUpdates, sendableUpdates } from "@codemirror/collab";
import { ChangeSet, EditorState, Transaction, type Extension } from "@codemirror/state";
import { EditorView, type ViewUpdate } from "@codemirror/view";
import { RpcError, type Params, type Peer } from "reciproc";
import type { Caret, Change, ClientApi, DocumentName, Opened, Person, Selection, ServerApi } from "../../api.js";
import { complain, show } from "../notice.js";
import { carets, edited, found, left, met, moved } from "./carets.js";

type Server = Peer<ClientApi, ServerApi>;

/** What the server takes: so many characters in all, and so many changes a call. */
const MOST_CHARACTERS = 20_000;
const MOST_CHANGES = 100;

/** By this name the page knows its own changes again, also over another connection. */
const PAGE = crypto.getRandomValues(new Uint32Array(2)).join("-");

export class SharedText {
  readonly document: DocumentName;
  readonly view: EditorView;
  readonly #extensions: Extension;
  /** Called when the text has become another one, other than by changes. */
  readonly #replaced: () => void;
  /** Whoever takes changes; `undefined` while the text is not up to date. */
  #server: Server | undefined;
  #life: string | undefined;
  /** Stands for the newest time that the text is being opened. And whether changes came meanwhile. */
  #opening: symbol | undefined;
  #isBehind = false;
  #isSending = false;
  /** Where the others believe this person to be. */
  #told: Selection | undefined;
  #frame = 0;
  #others: ReadonlyMap<string, Person> = new Map();

  constructor(document: DocumentName, parent: HTMLElement, extensions: Extension, replaced: () => void) {
    this.document = document;
    this.#extensions = extensions;
    this.#replaced = replaced;
    this.view = new EditorView({ parent, state: this.#state("", 0, true) });
  }

  /**
   * Opens the text, at first and whenever a connection was lost with all that was in it: goes on where it was when the server
   * knows that place, and begins anew otherwise. Until then nothing is sent, which would be for a text that may be another.
   */
  async join(server: Server): Promise<void> {
    this.#server = this.#told = undefined;
    const opening = (this.#opening = Symbol("opening"));
    try {
      do {
        this.#isBehind = false;
        const { document } = this;
        const since = this.#life === undefined ? undefined : { life: this.#life, version: this.#version };
        const opened = await server.request("open", { document, since });
        if (this.#opening !== opening) return;
        this.#take(opened);
      } while (this.#isBehind);
    } catch (error) {
      // When the connection is lost, the text is opened once more over the next one.
      if (error instanceof RpcError) complain(error);
      return;
    }
    this.#server = server;
    void this.#send();
  }

  /** Takes what somebody changed; from this page it is the confirmation. */
  receive({ version, by, updates }: Params<ClientApi["edited"]>): void {
    if (this.#server === undefined) this.#isBehind = true;
    else if (version !== this.#version) void this.join(this.#server);
    else this.#apply(updates, by);
  }

  /** Takes where somebody is: here, or in another text. */
  point(caret: Caret): void {
    if (this.#server === undefined) this.#isBehind = true;
    else if (caret.document !== this.document) this.view.dispatch({ effects: left.of(caret.id) });
    else this.view.dispatch({ effects: moved.of(this.#here(caret)) });
  }

  /** Takes who the others are. */
  meet(others: ReadonlyMap<string, Person>): void {
    this.#others = others;
    this.view.dispatch({ effects: met.of(others) });
  }

  get #version(): number {
    return getSyncedVersion(this.view.state);
  }

  #take({ life, version, content, carets: places }: Opened): void {
    this.#life = life;
    if ("updates" in content) this.#apply(content.updates);
    else {
      this.view.setState(this.#state(content.text, version, false));
      this.#replaced();
    }
    const others = places.filter(({ id }) => this.#others.has(id));
    const effects = [met.of(this.#others), found.of(others.map((caret) => this.#here(caret)))];
    this.view.dispatch({ effects });
  }

  /** A caret as it is in the text here, with what is under way and not in the server's text yet. */
  #here({ id, anchor, head }: Caret): Selection & { id: string } {
    const here = (place: number): number =>
      sendableUpdates(this.view.state).reduce((at, { changes }) => changes.mapPos(at, -1), place);
    return { id, anchor: here(anchor), head: here(head) };
  }

  #apply(updates: Params<ClientApi["edited"]>["updates"], by?: string): void {
    const effects = by === undefined ? [] : [edited.of(by)];
    const received = updates.map(({ page, change }) => ({
      clientID: page,
      changes: ChangeSet.fromJSON(change),
      effects,
    }));
    this.view.dispatch(receiveUpdates(this.view.state, received));
  }

  #state(doc: string, startVersion: number, readOnly: boolean): EditorState {
    return EditorState.create({
      doc,
      extensions: [
        this.#extensions,
        carets,
        collab({ startVersion, clientID: PAGE }),
        EditorState.readOnly.of(readOnly),
        EditorState.transactionFilter.of((transaction) => (this.#isTooLong(transaction) ? [] : transaction)),
        EditorView.updateListener.of((update) => this.#updated(update)),
      ],
    });
  }

  #updated({ transactions, docChanged, selectionSet, focusChanged }: ViewUpdate): void {
    if (!this.view.hasFocus) this.#told = undefined;
    for (const transaction of transactions) this.#told &&= carriedBy(transaction, this.#told);
    if (docChanged) void this.#send();
    // Once a frame and not once an event: a selection that is drawn with the mouse has many.
    if ((docChanged || selectionSet || focusChanged) && this.#frame === 0)
      this.#frame = requestAnimationFrame(() => this.#point());
  }

  #isTooLong({ docChanged, newDoc, startState }: Transaction): boolean {
    const isTooLong = docChanged && newDoc.length > MOST_CHARACTERS && newDoc.length > startState.doc.length;
    if (isTooLong) show(`The document is full: ${MOST_CHARACTERS} characters is all it takes.`);
    return isTooLong;
  }

  /** Sends what the server has not seen, one call at a time: what is typed meanwhile goes with the next. */
  async #send(): Promise<void> {
    const server = this.#server;
    if (server === undefined || this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#server === server && sendableUpdates(this.view.state).length > 0) {
        const updates = sendableUpdates(this.view.state).slice(0, MOST_CHANGES);
        const changes = updates.map((update) => update.changes.toJSON() as Change);
        const edit = { document: this.document, version: this.#version, page: PAGE, changes };
        // As long as the session lasts: it brings the answer, however late.
        await server.request("edit", edit, { timeoutMs: Infinity });
      }
    } catch (error) {
      if (error instanceof RpcError) this.#refused(error, server);
    } finally {
      this.#isSending = false;
    }
    this.#point();
  }

  /** What the server does not take cannot stay here either: the text as the others have it comes back. */
  #refused(error: RpcError, server: Server): void {
    complain(error);
    this.#life = undefined;
    void this.join(server);
  }

  /** Tells where this person is, unless that can be reckoned from what they type. */
  #point(): void {
    this.#frame = 0;
    const { state, hasFocus } = this.view;
    // It follows on what was sent, when that has arrived.
    if (this.#server === undefined || this.#isSending || sendableUpdates(state).length > 0 || !hasFocus) return;
    const { anchor, head } = state.selection.main;
    if (this.#told?.anchor === anchor && this.#told.head === head) return;
    this.#told = { anchor, head };
    this.#server.notify("point", { document: this.document, version: this.#version, anchor, head });
  }
}

/** Where the others believe somebody to be after a change: as they reckon it for each other's carets. */
function carriedBy(transaction: Transaction, { anchor, head }: Selection): Selection {
  const side = transaction.annotation(Transaction.remote) === true ? -1 : 1;
  return { anchor: transaction.changes.mapPos(anchor, side), head: transaction.changes.mapPos(head, side) };
}
