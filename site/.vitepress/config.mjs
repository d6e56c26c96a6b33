/** The documentation site. `scripts/docs.js` copies `docs/` to the source folder, adds the API types, and runs VitePress. */
import { readFileSync } from "node:fs";
import { defineConfig } from "vitepress";
import { sidebar } from "./pages.mjs";
import { slugOf } from "./slug.mjs";

const { version, description } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));

/** Two curved arrows that point at each other: both sides call. */
const ICON =
  "data:image/svg+xml," +
  encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" fill="none" stroke="#2f6fde" stroke-width="3.4" ' +
      'stroke-linecap="round" stroke-linejoin="round"><path d="M5 12h20l-6-6M27 20H7l6 6"/></svg>',
  );

/** Makes an empty header of a table, as in its corner, a cell: a header without a text names nothing. */
function markCorners({ tokens }) {
  for (const [i, { type }] of tokens.entries())
    if (type === "th_open" && tokens[i + 1].content === "") tokens[i].tag = tokens[i + 2].tag = "td";
}

export default defineConfig({
  title: "reciproc",
  description,
  lang: "en",
  srcDir: ".build/source",
  outDir: ".build/dist",
  cacheDir: ".build/cache",
  head: [
    ["link", { rel: "icon", href: ICON }],
    ["meta", { name: "theme-color", content: "#2f6fde" }],
  ],
  // The page of the API is one chunk of 580 kB (58 kB compressed), which is loaded on that page only.
  vite: { build: { chunkSizeWarningLimit: 1_000 } },
  // GitHub shows the same files: a heading has the same anchor there and here.
  markdown: {
    anchor: { slugify: slugOf },
    toc: { slugify: slugOf },
    config: (md) => md.core.ruler.push("corners", markCorners),
    languageAlias: { caddy: "nginx", haproxy: "ini" },
    theme: { light: "github-light-high-contrast", dark: "github-dark-default" },
  },
  // The generated types are found by name on their own pages. Without them, the search stays small.
  themeConfig: {
    logo: { src: ICON, alt: "" },
    nav: [
      { text: "Guide", link: "/guides/getting-started", activeMatch: "^/guides/" },
      { text: "API", link: "/API" },
      { text: "Types", link: "/types/", activeMatch: "^/types/" },
      { text: `v${version}`, link: "/changelog" },
    ],
    sidebar,
    outline: { level: [2, 3], label: "On this page" },
    externalLinkIcon: true,
    search: {
      provider: "local",
      options: {
        detailedView: true,
        miniSearch: { searchOptions: { boost: { title: 4, text: 2, titles: 1 }, fuzzy: 0.1, prefix: true } },
        _render(source, env, md) {
          return env.relativePath.startsWith("types/") ? "" : md.render(source, env);
        },
      },
    },
    notFound: {
      title: "Page not found",
      quote: "No page has this address. The search finds pages by their words.",
      linkText: "First page",
      linkLabel: "First page",
    },
    footer: { message: "MIT licence", copyright: `reciproc ${version}` },
  },
});
