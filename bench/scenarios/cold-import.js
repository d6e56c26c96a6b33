/** The time in which a new process imports the modules of a server and a client. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { less } from "./metric.js";

const run = promisify(execFile);
const DIRECTORY = new URL("..", import.meta.url);

export const coldImport = {
  name: "import",
  title: "Import in a fresh process",
  metrics: [less("time", "ms")],
  absence: ({ imports }) => (imports === undefined ? "same package as above" : undefined),
  async alone({ imports }) {
    const specifiers = imports.map((specifier) =>
      specifier.startsWith(".") ? new URL(specifier, DIRECTORY).href : specifier,
    );
    const program = `
      const before = performance.now();
      ${specifiers.map((specifier) => `await import(${JSON.stringify(specifier)});`).join("\n")}
      process.stdout.write(String(performance.now() - before));
      process.exit();`;
    const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: DIRECTORY });
    return { time: Number(stdout) };
  },
};
