/** The page's two rooms. The URL names the one that is shown, so that a reload and a second window show the same. */
import type * as room from "./editor/room.js";
import { byId } from "./dom.js";
import { complain } from "./notice.js";
import { tablist } from "./tablist.js";

export type Editor = typeof room;

/** Shows the room that the URL names. Calls `loaded` with the editor when it is opened for the first time. */
export function start(loaded: (editor: Editor) => void): void {
  const second = byId("second", HTMLAnchorElement);
  let loading: Promise<void> | undefined;
  let editor: Editor | undefined;
  let file = "";
  // Before the editor, so that a click is not lost while it loads.
  tablist(byId("files", HTMLElement), byId("css-tab", HTMLButtonElement), ({ value }) => {
    file = value;
    editor?.show(file);
  });
  const load = async (): Promise<void> => {
    try {
      editor = await import("./editor/room.js");
    } catch (error) {
      loading = undefined;
      return complain(error);
    }
    loaded(editor);
    editor.show(file);
  };
  const enter = tablist(byId("rooms", HTMLElement), named(), ({ value: name }) => {
    byId("board", HTMLElement).hidden = name !== "board";
    byId("editor", HTMLElement).hidden = name !== "editor";
    history.replaceState(null, "", name === "editor" ? "#editor" : location.pathname + location.search);
    second.href = new URL(`/${location.hash}`, location.href).href;
    if (name === "editor") loading ??= load();
  });
  addEventListener("hashchange", () => enter(named()));
}

/** Returns the tab of the room that the URL names. */
function named(): HTMLButtonElement {
  return byId(location.hash === "#editor" ? "editor-tab" : "board-tab", HTMLButtonElement);
}
