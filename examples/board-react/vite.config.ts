import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "build/page",
    emptyOutDir: true,
  },
  // `reciproc` is a link to this repository, which has no React of its own. An installed package needs no `dedupe`.
  resolve: { dedupe: ["react"] },
});
