/** Rendering on a server: no socket is opened, and no timer is left. The suite runs with each version of React. */
import { version as reactVersion } from "react";
import { renderToString } from "react-dom/server";
import { expect, it, vi } from "vitest";
import { createReciproc, useMutation, useMyPresence, useOthers, usePresence, useTopic } from "../../src/react/index.js";
import { virtualClock } from "../../src/testing/index.js";
import { rejection } from "../support/turns.js";

const { Provider, usePeer, useStatus, useConnection, useStream } = createReciproc();

let call: Promise<unknown> | undefined;

function Page() {
  const peer = usePeer();
  const { items, done } = useStream("log");
  const { others, isCurrent } = usePresence(peer, "people", {});
  useOthers(peer, "people", {});
  const [me, set] = useMyPresence(peer, "people", {}, { state: 1 });
  expect(() => set(new Map())).toThrow("Map");
  const more = [useTopic(peer, "open", {}, { reduce: {} }), useMutation(peer, "add").pending, useConnection().state];
  call = rejection(peer.request("echo", [1]));
  return (
    <p>
      {useStatus()} {JSON.stringify({ items, done, others, isCurrent, me, more })}
    </p>
  );
}

/** Runs the suite with a version of React, which the test file has put in place. */
export function itRendersOnAServer(version: 18 | 19): void {
  it.each(["/rpc", "ws://127.0.0.1:1/rpc"])("renders, and opens no connection to %s", async (url) => {
    const socket = vi.fn<() => void>();
    vi.stubGlobal("WebSocket", socket);
    using clock = virtualClock();
    const html = renderToString(
      <Provider url={url}>
        <Page />
      </Provider>,
    );
    expect(reactVersion).toMatch(new RegExp(`^${version}\\.`));
    expect(html.replaceAll("&quot;", "'").replaceAll("<!-- -->", "")).toBe(
      "<p>connecting {'items':[],'done':false,'others':[],'isCurrent':false,'me':1,'more':[{'isCurrent':false},[],'connecting']}</p>",
    );
    expect(await call).toMatchObject({ name: "ConnectionLostError" });
    expect(clock.timers).toBe(0);
    expect(socket).not.toHaveBeenCalled();
  });
}
