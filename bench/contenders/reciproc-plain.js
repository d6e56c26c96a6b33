export { connectPlain as connect, serve } from "./reciproc.js";
