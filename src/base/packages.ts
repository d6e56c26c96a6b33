/**
 * The packages that a page loads. The build puts them into the page's chunk (`scripts/bundle.js`), so a page needs no import
 * map for them, and a bundler needs no plugin for CommonJS.
 */
export { EventEmitter } from "eventemitter3";
export { nanoid } from "nanoid";
