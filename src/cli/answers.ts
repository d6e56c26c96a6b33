/** What a command answers to the requests of the other side, as its options `--answer` say, and its credentials, as `--auth` says. */
import { UsageError } from "./args.js";
import { loadDefault } from "./load.js";
import { parseJson } from "./params.js";
import type { Methods } from "./serve.js";

/** The lines of `--help` about the options of a connection. */
export const CONNECTION_HELP = `  --header "Name: value"  a header of the upgrade request; may be repeated
  --auth JSON             the credentials of the option \`auth\`, for a server that speaks reciproc.v1; --auth @FILE: by
                          the function that FILE exports by default, for each connection and when they expire
  --answer METHOD=JSON    answer requests for METHOD with this; METHOD=@FILE: by the function that FILE exports by
                          default. May be repeated
  --plain                 offer only plain JSON-RPC 2.0, and not the subprotocol reciproc.v1`;

/** Returns the handlers, in an object: a promise would call a method named `then`. Rejects with a `UsageError` that names the fault. */
export async function methodsOf(answers: ReadonlyMap<string, string>): Promise<{ methods: Methods }> {
  const handlers = [...answers].map(async ([method, answer]) => {
    const source = `--answer ${method}`;
    if (answer.startsWith("@")) return { method, handler: await handlerIn(answer.slice(1), source) };
    const value = parseJson(answer, source);
    return { method, handler: () => value };
  });
  return { methods: Object.fromEntries((await Promise.all(handlers)).map(({ method, handler }) => [method, handler])) };
}

/** Returns the option `auth` of a client. Rejects with a `UsageError`, which does not repeat credentials. */
export async function authOf(auth: string | undefined): Promise<object | undefined> {
  if (auth?.startsWith("@")) return handlerIn(auth.slice(1), "--auth", "() => credentials");
  try {
    return auth === undefined ? undefined : (JSON.parse(auth) as object);
  } catch {
    throw new UsageError(`--auth takes JSON, such as '{"token":"..."}', or @FILE`);
  }
}

async function handlerIn(file: string, source: string, example = "(params) => result"): Promise<Methods[string]> {
  const { value } = await loadDefault(file, example);
  if (typeof value === "function") return value as Methods[string];
  throw new UsageError(`${source}: the default export of "${file}" is not a function`);
}
