/** Proves that the unchanged code of docs/guides/metrics.md exports the documented metrics to Prometheus. */
import { once } from "node:events";
import type { Server as HttpServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Registry } from "prom-client";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type * as Source from "../../src/node.js";
import type { Peer, Server } from "../../src/node.js";
import { clean, extract, folder } from "./examples.js";
import { rejection } from "../support/turns.js";

let server: Server;
let scraped: HttpServer;
let peer: Peer;
let registry: Registry;

const load = async <T>(name: string): Promise<T> => (await import(pathToFileURL(join(folder, name)).href)) as T;

beforeAll(async () => {
  await extract("docs/guides/metrics.md");
  ({ server, scraped } = await load<{ server: Server; scraped: HttpServer }>("metered-server.js"));
  if (!scraped.listening) await once(scraped, "listening");
  ({ peer, registry } = await load<{ peer: Peer; registry: Registry }>("metered-client.js"));
});

afterAll(async () => {
  await peer.close();
  await server.close();
  scraped.closeAllConnections();
  await new Promise((resolve) => scraped.close(resolve));
  await clean();
});

/** Returns the samples of an exposition, and the types of its metrics. No name may repeat. */
function read(text: string): { samples: Record<string, number>; types: Record<string, string> } {
  const samples = [...text.matchAll(/^([^#].*) (\S+)$/gm)].map(([, name, value]) => [name!, Number(value)] as const);
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!] as const);
  expect(new Set(samples.map(([name]) => name)).size).toBe(samples.length);
  return { samples: Object.fromEntries(samples), types: Object.fromEntries(types) };
}

const scrape = async (): Promise<string> => (await fetch("http://127.0.0.1:4342/metrics")).text();

describe("the metrics guide", () => {
  it("shows all of server.stats(), once each, as counters and gauges", async () => {
    const { types } = read(await scrape());
    const names = Object.keys(server.stats());
    // One metric is added by the guide.
    expect(Object.keys(types)).toHaveLength(names.length + 1);
    expect(types).toMatchObject({
      reciproc_server_most_unsent_bytes: "gauge",
      reciproc_server_requests_received_total: "counter",
    });
  });

  it("shows current values at each scrape, without counting twice", async () => {
    for (const n of [1, 2]) expect(await peer.request("add", [n, 2])).toBe(n + 2);
    await rejection(peer.request("subtract"));
    const refused = await fetch(server.url.replace("ws:", "http:"), { method: "POST", body: "{}" });
    expect(refused.status).toBe(415);
    const { connect } = await load<typeof Source>("../../dist/node.js");
    await (await connect(server.url)).close();
    await vi.waitFor(() => expect(server.stats().peers).toBe(1));
    const first = await scrape();
    expect(first).toContain("# HELP reciproc_server_closed_total Peers that ended\n");
    expect(read(first).samples).toMatchObject({
      reciproc_server_peers: 1,
      'reciproc_server_closed_total{code="1000"}': 1,
      reciproc_server_opened_total: 2,
      reciproc_server_requests_received_total: 3,
      reciproc_server_requests_sent_total: 0,
      'reciproc_server_refused_total{status="415"}': 1,
      reciproc_server_most_unsent_bytes: 0,
    });
    expect(read(first).samples["reciproc_server_bytes_received_total"]).toBeGreaterThan(200);
    expect(await scrape()).toBe(first);
    await peer.request("add", [5, 6]);
    expect(read(await scrape()).samples["reciproc_server_requests_received_total"]).toBe(4);
  });

  it("shows all of a client's peer.stats()", async () => {
    await peer.request("add", [1, 2]);
    const text = await registry.metrics();
    expect(Object.keys(read(text).types)).toHaveLength(Object.keys(peer.stats()).length);
    expect(text).toContain(`\nreciproc_client_requests_sent_total ${peer.stats().requestsSent}\n`);
  });
});
