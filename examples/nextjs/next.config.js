import { join } from "node:path";

export default {
  // `reciproc` is a link to this repository. A project that installs the package needs no `root`.
  turbopack: { root: join(import.meta.dirname, "../..") },
};
