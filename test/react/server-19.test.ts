import { itRendersOnAServer } from "./rendering.js";

itRendersOnAServer(19);
