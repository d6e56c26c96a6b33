import { defineConfig } from "vite";

// CodeMirror is longer than the 500 kB at which Vite warns.
export default defineConfig({
  root: "page",
  build: { outDir: "../build", emptyOutDir: true, chunkSizeWarningLimit: 1_000 },
});
