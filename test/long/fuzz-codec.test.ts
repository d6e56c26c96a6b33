import { codecSuite } from "../fuzz/codec.js";

codecSuite(1);
