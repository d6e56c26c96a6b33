import { itHides, itWorksWith } from "./behaviour.js";

itWorksWith(19, itHides);
