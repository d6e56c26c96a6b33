/** HTTP POST from a page of another origin: the browser's handling of the server's CORS headers. */
import { beforeAll, expect, it } from "vitest";
import type { Frame, Page } from "playwright-core";
import { serve } from "../../src/node.js";
import { openBarePage } from "./site.js";

let page: Page;
beforeAll(async () => {
  ({ page } = await openBarePage());
});

/** Posts a call from a frame. Returns the status and the body, or the error. */
function postFrom(
  frame: Page | Frame,
  url: string,
  headers: Record<string, string>,
): Promise<[status: number, body: string] | string> {
  return frame.evaluate(
    async ([target, given]) => {
      const body = '{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}';
      try {
        const response = await fetch(target, { method: "POST", headers: given, body });
        return [response.status, await response.text()] as [number, string];
      } catch (error) {
        return String(error);
      }
    },
    [url.replace("ws:", "http:"), headers] as const,
  );
}

const JSON_TYPE = { "Content-Type": "application/json" };
const REPLY = [200, '{"jsonrpc":"2.0","id":1,"result":3}'];

it("lets a page of another local port call, with custom headers", async () => {
  const asked: unknown[] = [];
  await using server = await serve({
    port: 0,
    authenticate: ({ headers }) => asked.push(headers.authorization),
    methods: { add: ([a, b]: [number, number]) => a + b },
  });
  expect(await postFrom(page, server.url, { ...JSON_TYPE, Authorization: "token" })).toEqual(REPLY);
  // The preflight carries no credentials, so it is not authenticated.
  expect(asked).toEqual(["token"]);
});

it("lets such a page read why it is refused", async () => {
  await using server = await serve({ port: 0, authenticate: () => null });
  expect(await postFrom(page, server.url, JSON_TYPE)).toEqual([401, "authentication failed\n"]);
  expect(await postFrom(page, server.url, {})).toMatchObject([415, expect.stringContaining("text/plain")]);
});

it("lets a page of a refused origin neither run nor read anything", async () => {
  let ran = 0;
  await using server = await serve({ port: 0, methods: { add: () => ++ran } });
  const refused: string[] = [];
  server.on("refuse", ({ reason }, { method }) => refused.push(`${method} ${reason}`));
  // A sandboxed frame has no origin and sends `null`.
  await page.evaluate(() => {
    const frame = Object.assign(document.createElement("iframe"), {
      srcdoc: "<title>sandbox</title>",
      name: "sandbox",
    });
    frame.setAttribute("sandbox", "allow-scripts");
    document.body.append(frame);
  });
  await expect.poll(() => page.frame("sandbox")).not.toBeNull();
  expect(await postFrom(page.frame("sandbox")!, server.url, JSON_TYPE)).toContain("Failed to fetch");
  // Without the JSON content type the browser makes no preflight, and the request itself arrives.
  expect(await postFrom(page.frame("sandbox")!, server.url, {})).toContain("Failed to fetch");
  const reason = 'Origin "null" is not allowed; if it is yours, list it in `origins`';
  expect(refused).toEqual([`OPTIONS ${reason}`, `POST ${reason}`]);
  expect(ran).toBe(0);
});
