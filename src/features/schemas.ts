/** Checks of params by schemas. */
import type { Feature } from "../peer/feature.js";
import { fitSchemas } from "../contract/schema.js";

/**
 * The option `schemas`. On a page: `connect(url, { use: [schemas] })`. `reciproc/node` and `reciproc/testing` use it by default. A contract
 * checks params without it.
 */
export const schemas: Feature = { name: "schemas", methods: () => [], create: () => ({}), fitSchemas };
