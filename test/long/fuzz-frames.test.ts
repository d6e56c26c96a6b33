import { framesSuite } from "../fuzz/frames.js";

framesSuite(1);
