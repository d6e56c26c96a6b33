/** The groups of pages in the order of the sidebar. Every page of `docs/` is in one of them; a test checks it. `llms.txt` has the same groups. */
export const groups = {
  Start: {
    "Getting started": "guides/getting-started",
    "Calls in both directions": "guides/calls",
    "Typed contracts": "guides/contracts",
    Examples: "examples",
  },
  Use: {
    "Errors and outcomes": "guides/errors",
    "Reconnecting and sessions": "guides/sessions",
    "Live rooms": "guides/rooms",
    Streams: "guides/streams",
    "Progress and cancel": "guides/progress",
    "Files and bytes": "guides/files",
    Authentication: "guides/authentication",
    React: "guides/react",
    Testing: "guides/testing",
  },
  Operate: {
    Deployment: "guides/deployment",
    Scaling: "SCALING",
    Observability: "guides/observability",
    Metrics: "guides/metrics",
    Tracing: "guides/tracing",
    Troubleshooting: "guides/troubleshooting",
  },
  "Connect to others": {
    "Language servers": "guides/language-servers",
    "MCP and agents": "guides/mcp",
    "Other JSON-RPC systems": "guides/json-rpc",
    "From socket.io": "guides/from-socket-io",
    "From vscode-jsonrpc": "guides/from-vscode-jsonrpc",
    "From rpc-websockets": "guides/from-rpc-websockets",
  },
  Reference: {
    API: "API",
    "Types, generated": "types/index",
    "Command line": "CLI",
    Protocol: "PROTOCOL",
    Reliability: "RELIABILITY",
    Security: "SECURITY",
    Performance: "PERFORMANCE",
    Comparison: "comparison",
    Interoperability: "INTEROP",
    "Versions and support": "versions",
    Changelog: "changelog",
    Glossary: "glossary",
  },
  "How it is built": {
    Architecture: "ARCHITECTURE",
    Benchmarks: "benchmark",
    "CPU profile": "profile",
    Scale: "scale",
    "Several nodes": "fleet",
    Contributing: "contributing",
    "Report a flaw": "reporting",
  },
};

export const sidebar = Object.entries(groups).map(([group, pages]) => ({
  text: group,
  items: Object.entries(pages).map(([text, page]) => ({ text, link: `/${page.replace(/\/index$/, "/")}` })),
}));
