import { inMemory } from "./joins.js";
import { describeSocket } from "./suite.js";

describeSocket("in memory", inMemory, { tooLarge: 1009 });
