/**
 * The hooks with React 18, which `npm ci` of the project does not install, under a DOM.
 * @vitest-environment happy-dom
 * @vitest-environment-options { "url": "http://localhost/" }
 */
import { vi } from "vitest";
import { itWorksWith } from "../react/behaviour.js";

// The files of this project import React 18, which is installed beside this file, in place of React 19.
const load = vi.hoisted(
  () => async (name: string) => (await import("node:module")).createRequire(import.meta.url)(name) as object,
);
vi.mock("../../node_modules/react/index.js", () => load("react"));
vi.mock("../../node_modules/react/jsx-runtime.js", () => load("react/jsx-runtime"));
vi.mock("../../node_modules/react/jsx-dev-runtime.js", () => load("react/jsx-dev-runtime"));
vi.mock("../../node_modules/react-dom/client.js", () => load("react-dom/client"));
vi.mock("../../node_modules/@tanstack/react-query/build/modern/index.js", () => load("@tanstack/react-query"));

itWorksWith(18);
