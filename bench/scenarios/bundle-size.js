/** The size of the client half in a page. */
import { fileURLToPath } from "node:url";
import { sizeOf } from "../../scripts/size.js";
import { less } from "./metric.js";

const FOLDER = fileURLToPath(new URL("..", import.meta.url));

export const bundleSize = {
  name: "bundle",
  title: "Browser bundle",
  metrics: [
    less("gzip", "bytes gzipped, es2022"),
    less("gzip2020", "bytes gzipped, es2020"),
    less("gzipVite", "bytes gzipped, Vite"),
    less("minified", "bytes minified, es2022"),
  ],
  mostRounds: 1,
  absence: ({ browser }) => (browser === undefined ? "no package of its own in a browser" : undefined),
  async alone({ browser }) {
    const es2022 = await sizeOf(browser, "es2022", FOLDER);
    const es2020 = await sizeOf(browser, "es2020", FOLDER);
    const vite = await sizeOf(browser, "vite", FOLDER);
    return { gzip: es2022.gzip, gzip2020: es2020.gzip, gzipVite: vite.gzip, minified: es2022.minified };
  },
};
