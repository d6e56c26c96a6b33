import { teardownSuite } from "./teardown.js";

teardownSuite(8);
