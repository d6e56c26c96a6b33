/** The bundlers that are installed beside this file, for tests of other folders. */
export { build } from "esbuild-wasm";
