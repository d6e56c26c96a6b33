/** `Math.random` without chance. */
import { beforeEach, vi } from "vitest";

/** Makes `Math.random` return 0 in every test of the file, so that the progress tokens of each connection count from 1. */
export function useNoChance(): void {
  beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0));
}
