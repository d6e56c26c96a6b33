/** The bundlers installed in this folder, for tests of other folders. */
export { build } from "esbuild-wasm";
