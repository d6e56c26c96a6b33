/** The methods of the peer under test, and their outcomes for the oracle. */
import { setImmediate as turn } from "node:timers/promises";
import { RpcError } from "../../src/index.js";
import { INTERNAL_ERROR, METHOD_NOT_FOUND, type Served } from "./reference.js";

/** A method is a function of its params. It is asynchronous if `later` is true. */
const answers: Record<string, { answer: Served; later?: true }> = {
  echo: { answer: (_method, params) => ({ result: params === undefined ? null : params }) },
  later: { answer: (_method, params) => ({ result: params === undefined ? null : params }), later: true },
  count: { answer: (_method, params) => ({ result: Object.keys(params ?? {}).length }) },
  fail: { answer: () => ({ error: INTERNAL_ERROR }) },
  "fail later": { answer: () => ({ error: INTERNAL_ERROR }), later: true },
  refuse: { answer: () => ({ error: { code: 7, message: "no", data: [null] } }) },
  void: { answer: () => ({ result: null }) },
  sentinel: { answer: () => ({ result: "sentinel" }), later: true },
};

export const names = Object.keys(answers);

export const served: Served = (method, params) =>
  Object.hasOwn(answers, method) ? answers[method]!.answer(method, params) : { error: METHOD_NOT_FOUND };

export const methods = Object.fromEntries(
  Object.entries(answers).map(([name, { answer, later }]) => {
    const act = (params: unknown): unknown => perform(answer(name, params));
    return [name, later ? async (params: unknown) => (await turn(), act(params)) : act];
  }),
);

function perform(outcome: ReturnType<Served>): unknown {
  if ("result" in outcome) return outcome.result ?? undefined;
  if (outcome.error === INTERNAL_ERROR) throw new Error("secret");
  const { code, message, data } = outcome.error as RpcError;
  throw new RpcError(code, message, data);
}
