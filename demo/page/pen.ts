/** Reports the strokes and positions of a mouse, finger, pen or the keyboard, once a frame and not once an event. */
import { canvas } from "./board.js";
import { byId } from "./dom.js";

/** A piece of a stroke. */
export interface Piece {
  stroke: number;
  size: number;
  /** x, y, x, y, ... from 0 to 65535, which is the far edge. */
  points: number[];
}

/** The most points of a stroke, which bounds each message. A longer line becomes several strokes. */
const MOST_POINTS = 250;

const frame = byId("easel", HTMLElement);
const nib = byId("nib", HTMLElement);
const sizes = byId("sizes", HTMLFormElement);
/** A place on the board, as fractions of its width and height. */
interface Place {
  x: number;
  y: number;
}
/** The part of a pointer event that identifies the pointer. The keyboard is one more pointer. */
type Pointer = Pick<PointerEvent, "pointerId">;
const KEYBOARD: Pointer = { pointerId: -100 };
const DIRECTIONS = new Map<string, [dx: number, dy: number]>([
  ["ArrowLeft", [-1, 0]],
  ["ArrowRight", [1, 0]],
  ["ArrowUp", [0, -1]],
  ["ArrowDown", [0, 1]],
]);
const STEP = 0.02;

let strokes = 0;
let drawing: { pointer: number; piece: Piece; drawn: number } | undefined;
let place: Place | undefined;
let nextFrame = 0;

/** Starts to listen. Calls `draw` with each piece and `move` with each position. */
export function start(draw: (piece: Piece) => void, move: (place: Place) => void): void {
  const flush = (): void => {
    cancelAnimationFrame(nextFrame);
    nextFrame = 0;
    if (drawing !== undefined && drawing.piece.points.length > 0) {
      draw(drawing.piece);
      drawing.piece = { ...drawing.piece, points: [] };
    }
    if (place !== undefined) move(place);
    place = undefined;
  };
  const add = ({ pointerId }: Pointer, at: Place): void => {
    place = at;
    nextFrame ||= requestAnimationFrame(flush);
    if (drawing?.pointer !== pointerId) return;
    drawing.piece.points.push(...numbersOf(at));
    if (++drawing.drawn < MOST_POINTS) return;
    flush();
    begin(pointerId);
    drawing.piece.points.push(...numbersOf(at));
  };
  const end = ({ pointerId }: Pointer): void => {
    if (drawing?.pointer !== pointerId) return;
    flush();
    drawing = undefined;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || drawing !== undefined) return;
    // From here on, all moves of this pointer come to the canvas.
    canvas.setPointerCapture(event.pointerId);
    begin(event.pointerId);
    add(event, placeOf(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    // A pointer may move many times between two frames. Without these moves, fast curves have corners.
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length > 0 ? events : [event]) add(each, placeOf(each));
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"] as const) canvas.addEventListener(type, end);
  drawByKeys(add, end);
}

/** Moves the focus to the board, where the keys draw. */
export function focus(): void {
  frame.focus();
}

/** The arrow keys move a nib over the board, and with Shift faster. Space puts it down and lifts it. */
function drawByKeys(add: (by: Pointer, at: Place) => void, end: (by: Pointer) => void): void {
  const at = { x: 0.5, y: 0.5 };
  const lift = (): void => {
    end(KEYBOARD);
    frame.classList.remove("down");
  };
  const show = (): void => {
    nib.style.setProperty("--x", String(at.x));
    nib.style.setProperty("--y", String(at.y));
  };
  frame.addEventListener("keydown", (event) => {
    const { key, shiftKey, repeat } = event;
    const [dx, dy] = DIRECTIONS.get(key) ?? [0, 0];
    if ((dx === 0 && dy === 0 && key !== " ") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const isDown = drawing?.pointer === KEYBOARD.pointerId;
    if (key === " " && drawing !== undefined) {
      if (isDown && !repeat) lift();
      return;
    }
    if (key === " " && repeat) return;
    const step = shiftKey ? 5 * STEP : STEP;
    at.x = within(at.x + dx * step);
    at.y = within(at.y + dy * step);
    show();
    if (key === " ") {
      begin(KEYBOARD.pointerId);
      frame.classList.add("down");
    }
    add(KEYBOARD, at);
  });
  frame.addEventListener("blur", lift);
  show();
}

/** Calls `undo` when the button is pressed, or its keys where they do not undo typing. */
export function onUndo(undo: () => void): void {
  byId("undo", HTMLButtonElement).addEventListener("click", undo);
  document.addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, shiftKey, altKey, target } = event;
    if (key.toLowerCase() !== "z" || !(ctrlKey || metaKey) || shiftKey || altKey) return;
    if (target instanceof Element && target.matches("input:not([type=radio])")) return;
    // In the editor's room, the editor handles these keys.
    if (!canvas.checkVisibility()) return;
    event.preventDefault();
    undo();
  });
}

function begin(pointer: number): void {
  const size = Number(new FormData(sizes).get("size"));
  drawing = { pointer, piece: { stroke: ++strokes, size, points: [] }, drawn: 0 };
}

function placeOf({ clientX, clientY }: PointerEvent): Place {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  return { x: within((clientX - left) / width), y: within((clientY - top) / height) };
}

/** Returns a value inside the board, rounded to four digits, which is as fine as a pixel. */
function within(value: number): number {
  return Math.round(Math.min(1, Math.max(0, value)) * 10_000) / 10_000;
}

function numbersOf({ x, y }: Place): [x: number, y: number] {
  return [Math.round(x * 65_535), Math.round(y * 65_535)];
}
