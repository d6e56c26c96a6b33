/** The config of a peer that has the standard extensions. */
import { checkConfig, type AnyOptions, type Config } from "../core/config.js";
import { standardExtensions } from "../features/extensions.js";

/** Checks options. Throws a `TypeError` that names the option, the rule and the value. */
export function configOf(options: AnyOptions | undefined, opensFirst?: boolean): Config {
  return checkConfig(options, standardExtensions, opensFirst);
}
