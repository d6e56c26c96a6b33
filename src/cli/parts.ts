/** The parts of the command `reciproc bridge` that run a program on pipes. For the demo: the package does not export them. */
export { Child, type ChildEnd } from "../bridge/child.js";
export { FRAMINGS } from "../bridge/framing.js";
