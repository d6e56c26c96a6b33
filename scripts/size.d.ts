/** Bytes of a bundle. */
export interface Size {
  minified: number;
  gzip: number;
}

export function sizeOf(
  code: string,
  target?: "es2022" | "es2020" | "vite",
  folder?: string,
  external?: string[],
): Promise<Size>;

export function sharesOf(code: string): Promise<{ path: string; bytes: number }[]>;

/** The stores, the hooks and what tabs share, each with the imports of a page that has it at least. */
export const ADDED: readonly (readonly [name: string, beside: string])[];

/** Returns the gzipped bytes that an import adds to a page with the imports `beside`. */
export function addedBy(name: string, beside: string, target?: "es2022" | "es2020" | "vite"): Promise<number>;
