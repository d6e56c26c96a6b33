/** The entry for pages whose tabs share one connection: the tab, its shared worker, and the feature of the server. */
export { openTab } from "./tab.js";
export { tabs } from "./server.js";
export { shareConnection } from "./worker.js";
