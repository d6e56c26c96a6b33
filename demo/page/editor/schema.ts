/** What `server.json` may say: the options of `serve` that are plain data, as a JSON schema for its language server. */

const bytes = (what: string): object => ({
  type: "integer",
  minimum: 1,
  maximum: 256 * 2 ** 20,
  default: 2 ** 20,
  markdownDescription: `${what}, in bytes of UTF-8. Default 1 MiB, at most 256 MiB.`,
});

const count = (what: string, standard: number): object => ({
  type: "integer",
  minimum: 1,
  default: standard,
  markdownDescription: `${what} Default ${standard.toLocaleString("en")}.`,
});

export const schema = {
  type: "object",
  additionalProperties: false,
  properties: {
    port: {
      type: "integer",
      minimum: 0,
      maximum: 65535,
      default: 3000,
      markdownDescription: "Listens on this port. **0** picks a free one; `server.url` says which.",
    },
    host: {
      type: "string",
      default: "127.0.0.1",
      markdownDescription: "The address to listen on. Default `127.0.0.1`: *this machine only*.",
    },
    path: {
      type: "string",
      pattern: "^/[^?]*$",
      default: "/rpc",
      markdownDescription: "The only path that is served. Default: every path.",
    },
    link: {
      enum: ["packed", "plain"],
      default: "packed",
      markdownEnumDescriptions: [
        "Speaks `reciproc.v1`, many messages a frame, with a peer that offers it, and plain JSON-RPC with any other.",
        "Speaks plain JSON-RPC only, one message a frame.",
      ],
      markdownDescription:
        "How messages become frames. `packed` is faster. **Peers that are not reciproc always get plain JSON-RPC**.",
    },
    origins: {
      type: "array",
      items: { type: "string", pattern: "^[a-z][a-z0-9+.-]*://[^/]+$" },
      markdownDescription: "The origins whose pages may connect. The server's own host always may.",
    },
    hosts: {
      type: "array",
      items: { type: "string" },
      markdownDescription:
        "The names under which the server is reached. On loopback, others than `localhost` are refused.",
    },
    limits: {
      type: "object",
      additionalProperties: false,
      markdownDescription: "What the server and each of its peers accept. Every limit is on by default.",
      properties: {
        maxConnections: count("Most connections at once. Further ones get HTTP 503.", 10_000),
        maxMessageBytes: bytes("Longest incoming message"),
        maxReplyBytes: bytes("Longest reply"),
        maxBatchEntries: count("Most entries of a batch. A larger one is refused whole.", 1000),
        maxInFlight: count("Most incoming requests that run at once.", 1024),
        maxMalformedPerMinute: count("Most malformed messages within a minute; the next one closes.", 100),
        handshakeTimeoutMs: count("How long `authenticate` may take, in milliseconds.", 10_000),
      },
    },
  },
};
