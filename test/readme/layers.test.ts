import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const SRC = fileURLToPath(new URL("../../src/", import.meta.url));

/** What a file of each folder may import besides its own folder; "" is the folder of the entries. */
const MAY_IMPORT: Record<string, string[]> = {
  base: [],
  message: ["base"],
  contract: ["base", "message"],
  socket: ["base", "message"],
  session: ["base", "message", "socket"],
  peer: ["base", "message", "contract"],
  features: ["base", "message", "contract", "peer"],
  bridge: ["base", "message"],
  topics: ["base", "message", "contract", "peer"],
  fleet: ["base", "message", "contract", "peer", "topics"],
  nats: ["base", "message", "topics", "fleet"],
  redis: ["base", "message", "topics", "fleet"],
  client: ["base", "message", "contract", "socket", "session", "peer"],
  server: ["base", "message", "contract", "socket", "session", "peer", "features", "topics"],
  "": "base message contract socket session peer features client topics fleet server".split(" "),
  testing: [..."base message contract socket session peer features client topics fleet server".split(" "), ""],
  react: ["base", "message", "contract", "peer", "features", "client", ""],
  tabs: ["base", "message", "contract", "peer", "features", "client", "server", ""],
  cli: ["base", "message", "contract", "socket", "peer", "features", "client", "fleet", "server", "bridge", ""],
};

/** The files that need Node or `ws`, in these folders, whose other files run everywhere. */
const OF_NODE = new Set(["socket/buffers.ts", "socket/frames.ts", "socket/ws.ts"]);
const EVERYWHERE = new Set("base message contract socket session peer features client topics fleet".split(" "));

/** One import: a file relative to src/, or a package by its name. A type import does not exist at run time. */
interface Import {
  name: string;
  typeOnly: boolean;
  isLazy: boolean;
}

const importsOf = new Map<string, Import[]>(
  readdirSync(SRC, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => [file, readImports(file)]),
);

function readImports(file: string): Import[] {
  const text = readFileSync(join(SRC, file), "utf8");
  const statements =
    /^(?:import|export)\s+(type\s)?[^;]*?\bfrom\s+"([^"]+)"|^import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;
  return [...text.matchAll(statements)].map(([, type, from, bare, dynamic]) => {
    const path = (from ?? bare ?? dynamic)!;
    const name = path.startsWith(".") ? relative(SRC, join(SRC, dirname(file), path)).replace(/\.js$/, ".ts") : path;
    return { name, typeOnly: type !== undefined, isLazy: dynamic !== undefined };
  });
}

/** The names that a file imports, types included. */
const names = (file: string): string[] => importsOf.get(file)!.map(({ name }) => name);
const folderOf = (file: string): string => (file.includes("/") ? file.split("/")[0]! : "");

const files = [...importsOf.keys()];
const isFile = (name: string): boolean => importsOf.has(name);
const isOfReact = (name: string): boolean => name === "react" || folderOf(name) === "react";
const isNodeOnly = (name: string): boolean =>
  name === "ws" || name.startsWith("node:") || builtinModules.includes(name);

/** Everything that a file pulls in at run time, itself included. `isEager`: without what it imports later. */
function reach(file: string, isEager = false, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const { name, typeOnly, isLazy } of importsOf.get(file) ?? [])
    if (!typeOnly && !(isEager && isLazy)) reach(name, isEager, seen);
  return seen;
}

const lines = (file: string): number => readFileSync(join(SRC, file), "utf8").trimEnd().split("\n").length;

describe("the sources", () => {
  it("are read by this test, and every relative import is found", () => {
    expect(names("peer/peer.ts")).toEqual(expect.arrayContaining(["peer/connection.ts", "base/packages.ts"]));
    expect(importsOf.get("server/options.ts")).toContainEqual({ name: "node:http", typeOnly: true, isLazy: false });
    const lost = files.flatMap((file) => names(file).filter((name) => name.endsWith(".ts") && !isFile(name)));
    expect(lost).toEqual([]);
  });

  it("import only from lower layers, and neither Node nor ws in what runs everywhere, not even their types", () => {
    const breaches = files.flatMap((file) => {
      const folder = folderOf(file);
      const layers = new Set([...MAY_IMPORT[folder]!, folder]);
      const isAllowed = (name: string): boolean =>
        isFile(name) ? layers.has(folderOf(name)) : !EVERYWHERE.has(folder) || OF_NODE.has(file) || !isNodeOnly(name);
      return names(file).flatMap((name) => (isAllowed(name) ? [] : `${file} imports ${name}`));
    });
    expect(breaches).toEqual([]);
    expect(files).toEqual(expect.arrayContaining([...OF_NODE]));
  });

  it("reach neither Node nor ws from an entry for every runtime", () => {
    for (const entry of ["index.ts", "testing/index.ts", "react/index.ts", "tabs/index.ts"])
      expect([...reach(entry)].filter(isNodeOnly)).toEqual([]);
    expect([...reach("node.ts")].filter(isNodeOnly)).toContain("ws");
  });

  it("load nothing of a fleet with the entry for Node until there is an engine", () => {
    expect([...reach("node.ts", true)].filter((name) => folderOf(name) === "fleet")).toEqual([]);
    expect(reach("node.ts")).toContain("fleet/members.ts");
  });

  it("of react import no package but react, and no other folder imports it", () => {
    const inReact = files.filter((file) => folderOf(file) === "react");
    const packages = inReact.flatMap((file) => names(file).filter((name) => !isFile(name)));
    expect(new Set(packages)).toEqual(new Set(["react"]));
    expect(files.filter((file) => !inReact.includes(file) && names(file).some(isOfReact))).toEqual([]);
  });

  it("import a client of a broker in one file each", () => {
    const clients = { "redis/client.ts": /^(redis|@redis\/client)$/, "nats/client.ts": /^@nats-io\// };
    for (const [importer, client] of Object.entries(clients))
      expect(files.filter((file) => names(file).some((name) => client.test(name)))).toEqual([importer]);
  });

  it("stay within 600 lines each", () => {
    expect(files.filter((file) => lines(file) > 600)).toEqual([]);
  });
});

/** The modules of src whose interface a test may use: the entries, and those of a list of ARCHITECTURE.md. */
const [INTERFACES] = /^Tests import the entries .*?^A test that imports/ms.exec(
  readFileSync("docs/ARCHITECTURE.md", "utf8"),
)!;
const FOR_TESTS = new Set([...INTERFACES.matchAll(/`([\w/-]+)\.ts`/g)].map(([, name]) => name!));
/** How many files of test/, and of bench/scale, whose programs test/scale runs, may import others. The first line of each says why. */
const MOST_EXCEPTIONS = 15;

const TEST = fileURLToPath(new URL("../", import.meta.url));

/** Returns the modules of src that a file of test/ imports, those besides `FOR_TESTS`, and those that its first line does not name. */
function importsOfTest(file: string): { imported: string[]; modules: string[]; unexplained: string[] } {
  const text = readFileSync(join(TEST, file), "utf8");
  const imported = [
    ...new Set([...text.matchAll(/["'`](?:\.\.?\/)+src\/([^"'`]+?)(?:\.\w+)?["'`]/g)].map(([, name]) => name!)),
  ];
  const modules = imported.filter((name) => !FOR_TESTS.has(name));
  const [first = ""] = text.split("\n", 1);
  const isReason = /^\/[/*].*\bImports `/.test(first);
  return { imported, modules, unexplained: modules.filter((name) => !isReason || !first.includes(`\`${name}\``)) };
}

const testFiles = readdirSync(TEST, { recursive: true, encoding: "utf8" }).filter(
  (file) => /\.(tsx?|m?js|py)$/.test(file) && !/(^|\/)(node_modules|\.build)\//.test(file),
);

it("the tests import the interfaces of src, and few other modules, each with its reason in the first line", () => {
  const programs = readdirSync(join(TEST, "../bench/scale"))
    .filter((file) => file !== ".build")
    .map((file) => `../bench/scale/${file}`);
  const all = [...testFiles, ...programs].map((file) => ({ file, ...importsOfTest(file) }));
  const imported = new Set(all.flatMap((each) => each.imported));
  expect([...FOR_TESTS].filter((name) => !imported.has(name))).toEqual([]);
  const exceptions = all.filter(({ modules }) => modules.length > 0);
  expect(exceptions).toContainEqual(expect.objectContaining({ modules: ["socket/heartbeat", "socket/coalescer"] }));
  expect(exceptions.filter(({ unexplained }) => unexplained.length > 0)).toEqual([]);
  // All are printed if there are too many.
  expect(exceptions.length > MOST_EXCEPTIONS ? exceptions : []).toEqual([]);
});

it("the tests have at most as many lines as CONTRIBUTING.md allows", () => {
  const most = Number(/at most ([\d,]+) lines/.exec(readFileSync("CONTRIBUTING.md", "utf8"))![1]!.replace(",", ""));
  const count = testFiles.reduce((sum, file) => sum + readFileSync(join(TEST, file), "utf8").split("\n").length - 1, 0);
  expect(count).toBeLessThanOrEqual(most);
});

describe("importing an entry", () => {
  /** Prints, as JSON, the changes by the import. Runs in a process of its own, because vitest changes globals too. */
  const PROBE = `
    const roots = { globalThis, Object, "Object.prototype": Object.prototype, "Array.prototype": Array.prototype, "Promise.prototype": Promise.prototype };
    // The dependency loads Node's modules, some of which define lazy globals of Node's own when first touched.
    await import("ws");
    const look = () => Object.fromEntries(Object.entries(roots).map(([name, root]) => [name, Reflect.ownKeys(root).map(String)]));
    const listen = () => process.eventNames().map((name) => [String(name), process.listenerCount(name)]);
    const before = JSON.stringify([look(), listen()]);
    const values = Object.entries(Object.getOwnPropertyDescriptors(globalThis)).filter(([, d]) => "value" in d);
    await import(process.argv[1]);
    const changed = values.filter(([name, { value }]) => !Object.is(globalThis[name], value)).map(([name]) => name);
    console.log(JSON.stringify({ same: JSON.stringify([look(), listen()]) === before, changed, handles: process.getActiveResourcesInfo().filter((name) => name === "Timeout") }));
  `;

  it.each(["reciproc", "reciproc/node", "reciproc/nats", "reciproc/redis", "reciproc/testing"])(
    "%s changes no global, starts no timer and adds no process listener",
    (entry) => {
      const output = execFileSync(process.execPath, ["--input-type=module", "-e", PROBE, entry], {
        cwd: fileURLToPath(new URL("../../", import.meta.url)),
        encoding: "utf8",
      });
      expect(JSON.parse(output)).toEqual({ same: true, changed: [], handles: [] });
    },
  );
});
