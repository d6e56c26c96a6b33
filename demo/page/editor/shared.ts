/**
 * One text that several people edit at the same time. The page shows its own changes at once, and sends them to the server, which
 * puts all changes in one order. The `collab` extension of CodeMirror rebases changes that crossed.
 */
import { collab, getSyncedVersion, receiveUpdates, sendableUpdates } from "@codemirror/collab";
import { ChangeSet, EditorState, Transaction, type Extension } from "@codemirror/state";
import { EditorView, type ViewUpdate } from "@codemirror/view";
import { RpcError, type Params, type Peer } from "reciproc";
import type { Caret, Change, ClientApi, DocumentName, Opened, Person, Selection, ServerApi } from "../../api.js";
import { complain, show } from "../notice.js";
import { carets, edited, found, left, met, moved } from "./carets.js";

type Server = Peer<ClientApi, ServerApi>;

/** The limits of the server: the characters of a text, and the changes of a call. */
const MOST_CHARACTERS = 20_000;
const MOST_CHANGES = 100;

/** The name by which the page recognizes its own changes, also on a later connection. */
const PAGE = crypto.getRandomValues(new Uint32Array(2)).join("-");

export class SharedText {
  readonly document: DocumentName;
  readonly view: EditorView;
  readonly #extensions: Extension;
  /** Called when a new text has replaced the old one, other than by changes. */
  readonly #replaced: () => void;
  /** The peer that takes changes; `undefined` while the text is not up to date. */
  #server: Server | undefined;
  #life: string | undefined;
  /** Identifies the newest opening of the text, and holds whether changes came meanwhile. */
  #opening: symbol | undefined;
  #isBehind = false;
  #isSending = false;
  /** The position of this person, as the others compute it. */
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
   * Opens the text, on the first connection and after each lost one. Continues at the known version if the server has it, and
   * replaces the text otherwise. Sends nothing until then, because the changes could be for another text.
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
      // If the connection is lost, the text is opened again on the next one.
      if (error instanceof RpcError) complain(error);
      return;
    }
    this.#server = server;
    void this.#send();
  }

  /** Takes the changes of a person. Changes of this page are their confirmation. */
  receive({ version, by, updates }: Params<ClientApi["edited"]>): void {
    if (this.#server === undefined) this.#isBehind = true;
    else if (version !== this.#version) void this.join(this.#server);
    else this.#apply(updates, by);
  }

  /** Takes the position of a person, in this text or in another. */
  point(caret: Caret): void {
    if (this.#server === undefined) this.#isBehind = true;
    else if (caret.document !== this.document) this.view.dispatch({ effects: left.of(caret.id) });
    else this.view.dispatch({ effects: moved.of(this.#here(caret)) });
  }

  /** Takes the list of the other people. */
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

  /** Returns a caret in the text of this page, which has changes that the server does not have yet. */
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
    // Once for each frame and not for each event, because a selection by mouse has many events.
    if ((docChanged || selectionSet || focusChanged) && this.#frame === 0)
      this.#frame = requestAnimationFrame(() => this.#point());
  }

  #isTooLong({ docChanged, newDoc, startState }: Transaction): boolean {
    const isTooLong = docChanged && newDoc.length > MOST_CHARACTERS && newDoc.length > startState.doc.length;
    if (isTooLong) show(`The document is full: ${MOST_CHARACTERS} characters is all it takes.`);
    return isTooLong;
  }

  /** Sends the unconfirmed changes, one call at a time. Text typed meanwhile goes with the next call. */
  async #send(): Promise<void> {
    const server = this.#server;
    if (server === undefined || this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#server === server && sendableUpdates(this.view.state).length > 0) {
        const updates = sendableUpdates(this.view.state).slice(0, MOST_CHANGES);
        const changes = updates.map((update) => update.changes.toJSON() as Change);
        const edit = { document: this.document, version: this.#version, page: PAGE, changes };
        // No timeout, because the session delivers the response, however late.
        await server.request("edit", edit, { timeoutMs: Infinity });
      }
    } catch (error) {
      if (error instanceof RpcError) this.#refused(error, server);
    } finally {
      this.#isSending = false;
    }
    this.#point();
  }

  /** Drops changes that the server refused: opens the text of the server again. */
  #refused(error: RpcError, server: Server): void {
    complain(error);
    this.#life = undefined;
    void this.join(server);
  }

  /** Sends the position of this person, unless the others can compute it from the typed text. */
  #point(): void {
    this.#frame = 0;
    const { state, hasFocus } = this.view;
    // The position refers to the changes that were sent, so it is sent when they have arrived.
    if (this.#server === undefined || this.#isSending || sendableUpdates(state).length > 0 || !hasFocus) return;
    const { anchor, head } = state.selection.main;
    if (this.#told?.anchor === anchor && this.#told.head === head) return;
    this.#told = { anchor, head };
    const point = { document: this.document, version: this.#version, anchor, head };
    this.#server.notify("point", point, { latest: "point" });
  }
}

/** Returns the position of a person after a change, as the others compute it. */
function carriedBy(transaction: Transaction, { anchor, head }: Selection): Selection {
  const side = transaction.annotation(Transaction.remote) === true ? -1 : 1;
  return { anchor: transaction.changes.mapPos(anchor, side), head: transaction.changes.mapPos(head, side) };
}
