/** The types of the package, with the compiler of the project. `test/package` has older ones. */
import { itCompilesWith } from "./compiles.js";

itCompilesWith();
