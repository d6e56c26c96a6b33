/**
 * @vitest-environment happy-dom
 * @vitest-environment-options { "url": "http://localhost/" }
 */
import { itHides, itWorksWith } from "./behaviour.js";

itWorksWith(19, itHides);
