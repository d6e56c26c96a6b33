/** The package that a page loads. The build puts it into the page's chunk (`scripts/bundle.js`), so a page needs no import map for it. */
export { nanoid } from "nanoid";
