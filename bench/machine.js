/** The machine and the versions with which the figures were measured. */
import { readFileSync } from "node:fs";
import os from "node:os";

export function machine() {
  const cpus = os.cpus();
  return {
    cpu: `${cpus.length} x ${cpus[0].model.trim()}`,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    node: process.versions.node,
  };
}

/** Returns the versions of the packages that are measured, and of those that measure. */
export function versions(contenders) {
  const names = new Set(["ws", ...contenders.flatMap(({ packages }) => packages)]);
  const found = Object.fromEntries([...names].map((name) => [name, version(name)]));
  // `scripts/size.js` measures the bundles with these.
  for (const name of ["esbuild-wasm", "vite"]) found[name] = read(`../node_modules/${name}/package.json`).version;
  // reciproc uses the dependencies of the root directory. A different version there would change the figures.
  const own = read("../node_modules/ws/package.json").version;
  return own === found.ws ? found : { ...found, "ws, for reciproc": own };
}

/** Returns the version of one package. */
export function version(name) {
  return read(name === "reciproc" ? "../package.json" : `node_modules/${name}/package.json`).version;
}

function read(path) {
  return JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
}
