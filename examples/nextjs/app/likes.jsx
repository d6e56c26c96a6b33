"use client";
import { createReciproc, useTopic } from "reciproc/react";

const { Provider, usePeer, useStatus } = createReciproc();
const reduce = { liked: (_before, { likes }) => likes };

export function Likes() {
  return (
    <Provider url="/rpc">
      <Count />
    </Provider>
  );
}

function Count() {
  const peer = usePeer();
  const status = useStatus();
  const { value } = useTopic(peer, "likes", {}, { reduce });
  return (
    <>
      <p role="status">{status}</p>
      <button disabled={value === undefined} onClick={() => void peer.request("like").catch(console.error)}>
        Like ({value ?? "…"})
      </button>
    </>
  );
}
