import { vi } from "vitest";
import { itRendersOnAServer } from "../react/rendering.js";

// The files of this project import React 18, which is installed beside this file, in place of React 19.
const load = vi.hoisted(
  () => async (name: string) => (await import("node:module")).createRequire(import.meta.url)(name) as object,
);
vi.mock("../../node_modules/react/index.js", () => load("react"));
vi.mock("../../node_modules/react/jsx-runtime.js", () => load("react/jsx-runtime"));
vi.mock("../../node_modules/react/jsx-dev-runtime.js", () => load("react/jsx-dev-runtime"));
vi.mock("../../node_modules/react-dom/server.node.js", () => load("react-dom/server"));

itRendersOnAServer(18);
