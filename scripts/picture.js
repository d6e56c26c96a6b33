/** Draws the rooms of the source from its imports. Run as a program, it writes `docs/architecture.svg`. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SRC = join(ROOT, "src");
/** The width of a room and the distances between rooms, in pixels. */
const [WIDTH, HEIGHT, GAP, ROW] = [92, 30, 30, 76];

const roomOf = (path) => (path.includes("/") ? path.split("/")[0] : "entry");

/** Returns the rooms, each with the rooms that its files import. */
async function readRooms() {
  const rooms = new Map();
  const files = (await readdir(SRC, { recursive: true })).filter((file) => /\.tsx?$/.test(file));
  for (const file of files) {
    const text = await readFile(join(SRC, file), "utf8");
    const imported = rooms.get(roomOf(file)) ?? new Set();
    rooms.set(roomOf(file), imported);
    for (const [, path] of text.matchAll(/\bfrom\s+"(\.[^"]+)"/g)) {
      const target = relative(SRC, join(SRC, dirname(file), path));
      if (roomOf(target) !== roomOf(file)) imported.add(roomOf(target));
    }
  }
  return rooms;
}

/** Returns for each room the rooms that it imports and reaches by no other. */
function withoutDetours(rooms) {
  const reach = (room, seen = new Set()) => {
    for (const next of rooms.get(room)) if (!seen.has(next)) reach(next, seen.add(next));
    return seen;
  };
  return new Map(
    [...rooms].map(([room, imported]) => [
      room,
      [...imported].filter((one) => ![...imported].some((other) => other !== one && reach(other).has(one))),
    ]),
  );
}

const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / Math.max(1, numbers.length);

/** Returns the picture as SVG: a room is above those that it imports. */
export async function picture() {
  const rooms = withoutDetours(await readRooms());
  const height = (room) => Math.max(-1, ...rooms.get(room).map(height)) + 1;
  const rows = [];
  for (const room of [...rooms.keys()].toSorted((a, b) => a.localeCompare(b))) (rows[height(room)] ??= []).push(room);
  const width = Math.max(...rows.map((row) => row.length)) * (WIDTH + GAP) + GAP;
  const top = (rows.length - 1) * ROW;
  const places = new Map();
  for (const [y, row] of rows.entries()) {
    // A room is above the middle of those that it imports.
    const middleOf = (room) => mean(rooms.get(room).map((one) => places.get(one).x));
    const left = (width - row.length * (WIDTH + GAP) + GAP) / 2;
    for (const [i, room] of row.toSorted((a, b) => middleOf(a) - middleOf(b)).entries())
      places.set(room, { x: left + i * (WIDTH + GAP), y: GAP + top - y * ROW });
  }
  const lines = [...rooms].flatMap(([room, imported]) => {
    const from = places.get(room);
    return imported.map((one) => {
      const to = places.get(one);
      const [x1, y1, x2, y2] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y];
      return `<path d="M${x1} ${y1}C${x1} ${y1 + 24} ${x2} ${y2 - 24} ${x2} ${y2}"/>`;
    });
  });
  const boxes = [...places].map(
    ([room, { x, y }]) =>
      `<rect x="${x}" y="${y}" width="${WIDTH}" height="${HEIGHT}" rx="6"/><text x="${x + WIDTH / 2}" y="${y + 20}">${room}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top + HEIGHT + 2 * GAP}" width="${width}" role="img" aria-label="The rooms of the source: each is above those that it imports">`,
    `<style>path,rect{fill:none;stroke:#666;stroke-width:1.3}rect{fill:#fff}text{fill:#222;font:14px system-ui,sans-serif;text-anchor:middle}@media(prefers-color-scheme:dark){path,rect{stroke:#999}rect{fill:#222}text{fill:#eee}}</style>`,
    // The order of the files and of their imports must not matter.
    ...lines.toSorted(),
    ...boxes,
    "</svg>",
    "",
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  await writeFile(join(ROOT, "docs/architecture.svg"), await picture());
