/** The parts that the tests use of packages without types, or that are installed only when their tests run, after the types are checked. */
declare module "esbuild-wasm" {
  export type BuildOptions = Record<string, unknown>;
  /** `outputFiles` is undefined unless `write` is false. */
  export function build(options: BuildOptions): Promise<{ outputFiles?: { path: string; contents: Uint8Array }[] }>;
}

declare module "@rollup/wasm-node" {
  type OnLog = (level: string, log: { message: string }) => void;
  type Chunk = Record<"type" | "code", string> & { imports: string[] };
  export function rollup(options: { input: unknown; external?: string[]; onLog: OnLog }): Promise<{
    generate(options: { format: "es" }): Promise<{ output: [Chunk, ...Chunk[]] }>;
    close(): Promise<void>;
  }>;
}

declare module "express" {
  import type { IncomingMessage, ServerResponse } from "node:http";
  type Handler = (request: IncomingMessage, response: ServerResponse & { send(body: string): void }) => void;
  type App = ((request: IncomingMessage, response: ServerResponse) => void) &
    Record<"get" | "post" | "all" | "use", (...parts: (string | Handler)[]) => void>;
  const express: (() => App) & Record<"json" | "text" | "raw", (options?: object) => Handler>;
  export default express;
}
