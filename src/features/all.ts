/** All features. The entries for Node and for tests use them by default. */
import { bytes, type BytesCodec } from "../message/bytes.js";
import type { Feature } from "../peer/feature.js";
import { batches } from "./batches.js";
import { compat } from "./compat.js";
import { live } from "./live.js";
import { progress } from "./progress.js";
import { renewal } from "./renewal.js";
import { schemas } from "./schemas.js";
import { streams } from "./streams.js";

export const allFeatures: readonly (Feature | BytesCodec)[] = [
  streams,
  progress,
  batches,
  live,
  renewal,
  schemas,
  compat,
  bytes,
];
