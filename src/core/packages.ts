/**
 * The packages that a page loads. The build replaces the specifiers by copies in `dist/packages`, which are ES modules of
 * which each file is relative to the next: a page needs no import map for them, and a bundler no plugin for CommonJS.
 */
export { EventEmitter } from "eventemitter3";
export { nanoid } from "nanoid";
