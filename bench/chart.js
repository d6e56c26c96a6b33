/** Draws the main scenarios as bars: the ratio of each contender to bare `ws`, which is the line at 1. */

const COLUMNS = 2;
const PANEL = { width: 440, gap: 32, label: 168, value: 44, title: 34 };
const ROW = 20;
const MARGIN = 24;
const HEADER = 58;

const STYLE = `
  :root { --ground: #ffffff; --ink: #1f2328; --faint: #59636e; --bar: #b6bfc9; --own: #0f7b6c; --line: #8c959f; }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #0d1117; --ink: #e6edf3; --faint: #9198a1; --bar: #4a525c; --own: #3fb9a4; --line: #7d8590; }
  }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
  .head { font-size: 17px; font-weight: 600; }
  .title { font-size: 13px; font-weight: 600; }
  .faint { fill: var(--faint); }
  .bar { fill: var(--bar); }
  .own { fill: var(--own); }
  .ours { font-weight: 600; }
  .one { stroke: var(--line); stroke-width: 1; stroke-dasharray: 3 3; }
  .value { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; font-variant-numeric: tabular-nums; }
`;

/** Returns the SVG. It follows the light or dark scheme of the reader. */
export function chart({ scenarios, contenders, machine, quick }) {
  const panels = scenarios
    .filter(({ main }) => main)
    .map((scenario) => ({ scenario, bars: barsOf(scenario, contenders) }));
  const columns = Array.from({ length: COLUMNS }, () => ({ height: 0, parts: [] }));
  for (const panel of panels) {
    // Each panel goes to the column with most room: a panel without some of the contenders is shorter.
    const column = columns.reduce((least, other) => (other.height < least.height ? other : least));
    const x = MARGIN + columns.indexOf(column) * (PANEL.width + PANEL.gap);
    column.parts.push(draw(panel, x, HEADER + MARGIN + column.height));
    column.height += PANEL.title + panel.bars.length * ROW + MARGIN;
  }
  const width = 2 * MARGIN + COLUMNS * PANEL.width + (COLUMNS - 1) * PANEL.gap;
  const height = HEADER + MARGIN + Math.max(...columns.map((column) => column.height));
  const about = `Messages a second as a ratio to bare ws, one frame a message (dashed); longer is better. ${machine.cpu}, Node ${machine.node}${quick ? ", a quick run" : ""}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escape(about)}">
<style>${STYLE}</style>
<rect width="100%" height="100%" rx="8" fill="var(--ground)"/>
<text class="head" x="${MARGIN}" y="38">JSON-RPC over WebSocket, side by side</text>
<text class="faint" x="${MARGIN}" y="60">${escape(about)}</text>
${columns.flatMap(({ parts }) => parts).join("\n")}
</svg>
`;
}

function barsOf({ metrics, results }, contenders) {
  return contenders.flatMap(({ name, title }) => {
    const { ratio } = results[name][metrics[0].name] ?? {};
    return ratio === undefined ? [] : [{ title, ratio, own: name.startsWith("reciproc") }];
  });
}

function draw({ scenario, bars }, x, y) {
  const room = PANEL.width - PANEL.label - PANEL.value;
  const scale = room / Math.max(1, ...bars.map(({ ratio }) => ratio));
  const top = y + PANEL.title - 12;
  const zero = x + PANEL.label;
  const one = round(zero + scale);
  return [
    `<text class="title" x="${x}" y="${y + 10}">${escape(scenario.title)}</text>`,
    `<line class="one" x1="${one}" x2="${one}" y1="${top}" y2="${top + bars.length * ROW}"/>`,
    ...bars.map((bar, index) => drawBar(bar, zero, top + index * ROW, bar.ratio * scale)),
  ].join("\n");
}

function drawBar({ title, ratio, own }, x, y, length) {
  const weight = own ? " ours" : "";
  return [
    `<text class="label${weight}" x="${x - 8}" y="${y + 14}" text-anchor="end">${escape(title)}</text>`,
    `<rect class="${own ? "own" : "bar"}" x="${x}" y="${y + 3}" width="${round(length)}" height="${ROW - 6}" rx="2"/>`,
    `<text class="value${weight}" x="${round(x + length + 6)}" y="${y + 14}">${ratio.toFixed(2)}</text>`,
  ].join("\n");
}

function round(value) {
  return Math.round(value * 10) / 10;
}

function escape(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
