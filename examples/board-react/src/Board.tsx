/** The cards. A change is shown at once, and corrected if the server refuses it. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";
import type { Card, Draft } from "../api.js";
import { useNotification, usePeer } from "./rpc.js";

const KEY = ["cards"];

/** Puts a card in its place, or at the end. */
const put = (cards: Card[], card: Card) =>
  cards.some(({ id }) => id === card.id) ? cards.map((one) => (one.id === card.id ? card : one)) : [...cards, card];

export function Board({ name }: { name: string }) {
  const peer = usePeer();
  const queries = useQueryClient();
  const [notice, setNotice] = useState("");
  const { data: cards = [] } = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => peer.request("cards", undefined, { signal }),
  });

  const change = (next: (cards: Card[]) => Card[]) => queries.setQueryData<Card[]>(KEY, (old = []) => next(old));
  const refetch = useCallback(() => void queries.invalidateQueries({ queryKey: KEY }), [queries]);
  useNotification("changed", ({ card }) => change((old) => put(old, card)));
  useNotification("removed", ({ id }) => change((old) => old.filter((card) => card.id !== id)));
  // After a restart of the server, and after changes that were dropped because this page was slow, fetch all cards.
  useEffect(() => {
    peer.on("lost", refetch).on("missed", refetch);
    return () => void peer.off("lost", refetch).off("missed", refetch);
  }, [peer, refetch]);

  const save = useMutation({
    mutationFn: (draft: Draft) => peer.request("put", draft),
    onMutate: (draft) => change((old) => put(old, { owner: name, ...old.find(({ id }) => id === draft.id), ...draft })),
    onSuccess: () => setNotice(""),
    onError: (error) => {
      setNotice(error.message);
      refetch(); // instead of what the server has refused
    },
  });
  const remove = useMutation({
    mutationFn: ({ id }: Card) => peer.request("remove", { id }),
    onSuccess: (isRemoved, { owner }) => setNotice(isRemoved ? "" : `${owner} said no`),
    onError: (error) => setNotice(error.message),
  });
  const add = (data: FormData) =>
    save.mutate({ id: crypto.randomUUID(), text: String(data.get("text")), isDone: false });

  return (
    <main>
      <form action={add}>
        <input name="text" aria-label="New card" placeholder="New card" maxLength={200} required />
        <button>Add</button>
      </form>
      <ul aria-label="Cards">
        {cards.map((card) => (
          <li key={card.id}>
            <label>
              <input
                type="checkbox"
                checked={card.isDone}
                onChange={() => save.mutate({ ...card, isDone: !card.isDone })}
              />
              {card.text}
            </label>
            <small>{card.owner}</small>
            <button aria-label={`Remove ${card.text}`} onClick={() => remove.mutate(card)}>
              ×
            </button>
          </li>
        ))}
      </ul>
      <p role="alert">{notice}</p>
    </main>
  );
}
