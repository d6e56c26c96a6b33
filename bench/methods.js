/** The methods that every contender serves, and the payloads of all calls. */

/** The methods that are notifications. Some contenders register notifications apart from requests. */
export const NOTIFICATIONS = new Set(["note", "cursor", "moved"]);

/** A limit above the largest message, for contenders whose default limit is lower. */
export const MAX_MESSAGE_BYTES = 4 * 2 ** 20;

/** Returns the methods of a server. `who` is the caller, as the `broadcast` of the contender takes it. */
export function serverMethods(broadcast) {
  let noted = 0;
  return {
    increment: (n) => n + 1,
    echo: (x) => x,
    /** Returns the number of bytes that have come in one message. */
    received: (view) => view.length,
    note: (n) => {
      noted += n;
    },
    /** Returns the sum of all notifications since its last call. */
    noted: () => {
      const sum = noted;
      noted = 0;
      return sum;
    },
    cursor: (at, who) => broadcast("moved", at, who),
  };
}

/** Returns text that does not compress and that shares no strings. It is the same in every run. */
export function text(length) {
  const characters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.";
  let seed = 1;
  return Array.from({ length }, () => {
    seed = (seed * 48271) % 2147483647;
    return characters[seed % characters.length];
  }).join("");
}
