/** The config of a peer that has all extensions. `lsp` is the dialect if the options choose none. */
import { checkConfig, type AnyOptions, type Config } from "../core/config.js";
import { lsp } from "../features/dialects/lsp.js";
import { controlsOf, Features } from "../features/features.js";

const FEATURES = {
  dialect: lsp,
  controlsOf,
  conventions: (connection: ConstructorParameters<typeof Features>[0]) => new Features(connection),
};

/** Checks options. Throws a `TypeError` that names the option, the rule and the value. */
export function configOf(options: AnyOptions | undefined, opensFirst?: boolean): Config {
  return checkConfig(options, FEATURES, opensFirst);
}
