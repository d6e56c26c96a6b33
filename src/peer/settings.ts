/** The settings of a peer with everything that a peer has: `lsp` is the dialect where none is chosen. */
import { Settings, type AnyOptions, type Owner } from "../core/settings.js";
import { lsp } from "../features/dialects/lsp.js";
import { controlsOf, Features } from "../features/features.js";

const FEATURES = {
  dialect: lsp,
  controlsOf,
  conventions: (connection: ConstructorParameters<typeof Features>[0]) => new Features(connection),
};

/** Checks options. Throws a `TypeError` that names the option, the rule and the value. */
export function settingsOf(options: AnyOptions | undefined, owner?: Owner): Settings {
  return new Settings(options, FEATURES, owner);
}
