import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "build/page",
    emptyOutDir: true,
    // TanStack Query marks its modules with "use client", which has no meaning in this page.
    rolldownOptions: { onLog: (level, log, next) => log.code !== "MODULE_LEVEL_DIRECTIVE" && next(level, log) },
  },
  // `reciproc` is a link to this repository, which has no React of its own. An installed package needs no `dedupe`.
  resolve: { dedupe: ["react"] },
});
