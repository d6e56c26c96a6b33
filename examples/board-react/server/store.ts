/** What survives a restart, in one folder: the cards, the key of the cookies, and uploaded files. */
import { createHmac, randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { createWriteStream, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Card } from "../api.js";

const FOLDER = process.env["BOARD_FOLDER"] ?? "data";
const FILE = join(FOLDER, "board.json");
const UPLOADS = join(FOLDER, "uploads");
mkdirSync(UPLOADS, { recursive: true });

interface Stored {
  key: string;
  cards: Card[];
}
const stored: Stored = existsSync(FILE)
  ? (JSON.parse(readFileSync(FILE, "utf8")) as Stored)
  : { key: randomBytes(32).toString("hex"), cards: [] };
const save = () => writeFileSync(FILE, JSON.stringify(stored), { mode: 0o600 });
save();

export const cards = () => stored.cards;
export const cardOf = (id: string) => stored.cards.find((card) => card.id === id);

export function putCard(card: Card): Card {
  const at = stored.cards.findIndex(({ id }) => id === card.id);
  if (at < 0) stored.cards.push(card);
  else stored.cards[at] = card;
  save();
  return card;
}

export function removeCard(id: string): void {
  stored.cards = stored.cards.filter((card) => card.id !== id);
  save();
}

/** Stores a file. If its parts end with an error, rejects with it, and stores nothing. */
export async function storeUpload(parts: AsyncIterable<Uint8Array>): Promise<void> {
  const path = join(UPLOADS, randomUUID()); // a name that a user has chosen may lead out of the folder
  try {
    await pipeline(parts, createWriteStream(path));
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  }
}

const signatureOf = (name: string) => createHmac("sha256", stored.key).update(name).digest("base64url");

/** The cookie that proves a name. */
export const cookieOf = (name: string) =>
  `user=${encodeURIComponent(name)}.${signatureOf(name)}; Path=/; HttpOnly; SameSite=Strict; Max-Age=86400`;

/** Returns the name that the cookie of a request proves, or null. */
export function nameIn(cookie: string | undefined): string | null {
  const [, encoded, signature] = /(?:^|; )user=([^.;]+)\.([\w-]+)/.exec(cookie ?? "") ?? [];
  if (encoded === undefined || signature === undefined) return null;
  const name = decodeURIComponent(encoded);
  const expected = Buffer.from(signatureOf(name));
  const given = Buffer.from(signature);
  return expected.length === given.length && timingSafeEqual(expected, given) ? name : null;
}
