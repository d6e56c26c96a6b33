/** A part of all cases. test/long runs all of them. */
import { codecSuite } from "./codec.js";
import { controlsSuite } from "./controls.js";
import { framesSuite } from "./frames.js";

codecSuite(0.05);
controlsSuite(0.2);
framesSuite(0.05);
