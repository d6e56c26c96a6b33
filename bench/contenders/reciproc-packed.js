export { connectPacked as connect, serve } from "./reciproc.js";
