import { itWorksWith } from "./behaviour.js";

itWorksWith(18);
