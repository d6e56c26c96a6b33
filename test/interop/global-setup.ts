/** Before any test: other people's packages are there. */
import { ensurePackages } from "./install.js";

export default (): Promise<void> => ensurePackages(import.meta.dirname);
