/** The cards. A change is shown at once, and corrected if the server refuses it. */
import { startTransition, useOptimistic, useState } from "react";
import type { Reducers } from "reciproc";
import { useTopic } from "reciproc/react";
import type { Card, Draft, PageApi } from "../api.js";
import { usePeer } from "./rpc.js";

/** Puts a card in its place, or at the end. */
const put = (cards: Card[], card: Card) =>
  cards.some(({ id }) => id === card.id) ? cards.map((one) => (one.id === card.id ? card : one)) : [...cards, card];

const reduce: Reducers<Card[], PageApi> = {
  changed: (cards, { card }) => put(cards, card),
  removed: (cards, { id }) => cards.filter((card) => card.id !== id),
};

export function Board({ name }: { name: string }) {
  const peer = usePeer();
  const [notice, setNotice] = useState("");
  const { value = [] } = useTopic(peer, "cards/join", {}, { reduce, leave: "cards/leave" });
  const [cards, show] = useOptimistic(value, put);

  const act = (call: () => Promise<string>) =>
    startTransition(async () => setNotice(await call().catch(({ message }: Error) => message)));
  const save = (draft: Draft) =>
    act(async () => {
      show({ owner: name, ...value.find(({ id }) => id === draft.id), ...draft });
      await peer.request("put", draft);
      return "";
    });
  const remove = ({ id, owner }: Card) =>
    act(async () => ((await peer.request("remove", { id })) ? "" : `${owner} said no`));
  const add = (data: FormData) => save({ id: crypto.randomUUID(), text: String(data.get("text")), isDone: false });

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
              <input type="checkbox" checked={card.isDone} onChange={() => save({ ...card, isDone: !card.isDone })} />
              {card.text}
            </label>
            <small>{card.owner}</small>
            <button aria-label={`Remove ${card.text}`} onClick={() => remove(card)}>
              ×
            </button>
          </li>
        ))}
      </ul>
      <p role="alert">{notice}</p>
    </main>
  );
}
