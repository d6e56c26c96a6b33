/** The bundlers are installed only when their tests run, and types are checked before that. These are the parts that the tests use. */
declare module "esbuild-wasm" {
  interface BuildOptions {
    entryPoints?: string[];
    stdin?: { contents: string; resolveDir: string; loader?: "ts" | "tsx" };
    outfile?: string;
    outdir?: string;
    bundle: true;
    minify?: boolean;
    format: "esm";
    platform: "browser" | "node";
    target: string;
    banner?: { js: string };
    alias?: Record<string, string>;
    define?: Record<string, string>;
    external?: string[];
    jsx?: "automatic";
    legalComments?: "none";
    loader?: Record<string, "dataurl">;
    logLevel?: "error";
    write?: boolean;
  }
  /** `outputFiles` is undefined unless `write` is false. */
  export function build(options: BuildOptions): Promise<{ outputFiles?: { path: string; contents: Uint8Array }[] }>;
}

declare module "@rollup/wasm-node" {
  interface InputOptions {
    input: string | Record<string, string>;
    external?: string[];
    onLog: (level: string, log: { message: string }) => void;
  }
  interface Chunk {
    type: string;
    code: string;
    imports: string[];
  }
  interface Bundle {
    generate(options: { format: "es" }): Promise<{ output: [Chunk, ...Chunk[]] }>;
    close(): Promise<void>;
  }
  export function rollup(options: InputOptions): Promise<Bundle>;
}
