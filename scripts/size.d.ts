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
