import { inspectMemory, memory } from "../../src/fleet/memory.js";
import { describeEngine } from "./suite.js";

describeEngine("memory", async () => {
  const engine = memory();
  const leftovers = async (): Promise<string[]> => inspectMemory(engine).filter((text) => !text.startsWith("log "));
  return { engine: () => engine, leftovers, close: async () => {} };
});
