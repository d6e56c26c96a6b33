import { createShardedAdapter } from "@socket.io/redis-adapter";
import { redisClient, startNodeWith } from "./socket.io.js";

export { connect } from "./socket.io.js";
export const startNode = startNodeWith(async (url) =>
  createShardedAdapter(await redisClient(url), await redisClient(url)),
);
