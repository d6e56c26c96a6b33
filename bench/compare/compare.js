/** Runs every experiment on every contender, and writes the results into the documents, between the markers. */
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { facts, OWN_PROTOCOL } from "./facts.js";

/** Each contender is a file in adapters/ and the package of that name. Some need a second package. */
const contenders = {
  reciproc: [],
  "vscode-ws-jsonrpc": ["vscode-jsonrpc"],
  "rpc-websockets": [],
  "json-rpc-2.0": [],
  jayson: [],
  birpc: [],
  capnweb: [],
  "socket.io": [],
};
const BEGIN = "<!-- measured: begin -->";
const END = "<!-- measured: end -->";

const run = promisify(execFile);

async function experiment(contender, column) {
  const { stdout } = await run(process.execPath, ["experiment.js", contender, column], { cwd: import.meta.dirname });
  if (stdout === "") throw new Error(`"${facts[column].title}" printed nothing for ${contender}`);
  process.stdout.write(`${contender}: ${facts[column].title}: ${stdout}\n`);
  return stdout;
}

function label(contender) {
  return [contender, ...contenders[contender]].map((name) => `${name} ${version(name)}`).join(", ");
}

function version(name) {
  const manifest = name === "reciproc" ? "../../package.json" : `node_modules/${name}/package.json`;
  return JSON.parse(readFileSync(new URL(manifest, import.meta.url), "utf8")).version;
}

async function measure() {
  const names = Object.keys(contenders);
  const slow = facts.findIndex((fact) => fact.slow);
  // The experiments that only wait run beside the others. The others run one by one, because their deadlines are short.
  const waiting = Promise.all(names.map((name) => experiment(name, slow)));
  const rows = [];
  for (const name of names) {
    const row = [];
    for (const [column, fact] of facts.entries()) {
      if (column === slow) row.push("");
      else row.push(fact.wire && row[0].startsWith(OWN_PROTOCOL) ? OWN_PROTOCOL : await experiment(name, column));
    }
    rows.push(row);
  }
  for (const [index, cell] of (await waiting).entries()) rows[index][slow] = cell;
  return rows.map((row, index) => [label(names[index]), ...row]);
}

/** Returns a table in the layout of prettier, so that a run leaves nothing to format. */
function table([head, ...rows]) {
  const escaped = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = head.map((_, column) => Math.max(...escaped.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(" | ")} |`;
  return [line(escaped[0]), line(widths.map((width) => "-".repeat(width))), ...escaped.slice(1).map(line)].join("\n");
}

/** Writes `text` between the markers of a document. */
function publish(document, text) {
  const url = new URL(`../../${document}`, import.meta.url);
  const page = readFileSync(url, "utf8");
  const [before, after] = [page.split(BEGIN)[0], page.split(END)[1]];
  if (after === undefined) throw new Error(`${document} lacks ${BEGIN} or ${END}`);
  writeFileSync(url, `${before}${BEGIN}\n\n${text}\n\n${END}${after}`);
}

/** Returns the table of the README: a column for each contender, with each cell cut before its details. */
function brief([head, ...rows]) {
  return head.map((title, column) => {
    const details = column === 0 ? "," : ": ";
    return [title.split(": its")[0], ...rows.map((row) => row[column].split(details)[0])];
  });
}

const measured = [["", ...facts.map((fact) => fact.title)], ...(await measure())];
publish("docs/comparison.md", `${table(measured)}\n\nNode ${process.versions.node}.`);
publish("README.md", table(brief(measured)));
