/** What every contender serves, by the same names, and the payloads that all of them carry. */

/** Those that are notifications: some contenders register them apart. */
export const NOTIFICATIONS = new Set(["note", "cursor", "moved"]);

/** More than the largest message, for contenders with a limit below it. */
export const MAX_MESSAGE_BYTES = 4 * 2 ** 20;

/** The methods of a server. `who` stands for the caller, in whatever shape the contender's `broadcast` knows it. */
export function serverMethods(broadcast) {
  let noted = 0;
  return {
    increment: (n) => n + 1,
    echo: (x) => x,
    note: (n) => {
      noted += n;
    },
    /** The sum of what was noted since it was last asked. */
    noted: () => {
      const sum = noted;
      noted = 0;
      return sum;
    },
    cursor: (at, who) => broadcast("moved", at, who),
  };
}

/** Text that no compression or string sharing makes shorter, the same in every run. */
export function text(length) {
  const characters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.";
  let seed = 1;
  return Array.from({ length }, () => {
    seed = (seed * 48271) % 2147483647;
    return characters[seed % characters.length];
  }).join("");
}
