import { controlsSuite } from "../fuzz/controls.js";

controlsSuite(1);
