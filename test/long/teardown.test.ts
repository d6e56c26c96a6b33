import { teardownSuite } from "../features/teardown.js";

teardownSuite(1);
