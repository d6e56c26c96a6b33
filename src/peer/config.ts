/** The config of a peer that has the standard extensions. */
import { makeConfig, PEER_OPTIONS, type AnyOptions, type Config } from "../core/config.js";
import { checkOptions, type Checked } from "../core/options.js";
import { standardExtensions } from "../features/extensions.js";

/** Checks the options of a peer. Throws a `TypeError` that names the option, the rule and the value. */
export function configOf(options: AnyOptions | undefined, opensFirst?: boolean): Config {
  return configFrom(checkOptions("options", options, PEER_OPTIONS), opensFirst);
}

/** Makes the config of options that are checked. `opensFirst`: see `Config`. */
export function configFrom(checked: Checked<typeof PEER_OPTIONS>, opensFirst?: boolean): Config {
  return makeConfig(checked, standardExtensions, opensFirst);
}
