/** The bundler of this folder's tests, for tests of other folders. */
export { build } from "esbuild-wasm";
