/** The contenders over several nodes. Each is a file in contenders/ and a row of every table. */

/** The contender whose figures the calculation uses. */
export const OWN = "reciproc";

export const contenders = [
  { name: OWN, title: "reciproc", packages: ["reciproc"], publishes: true },
  { name: "socket.io-redis", title: "socket.io, redis-adapter", packages: ["socket.io", "@socket.io/redis-adapter"] },
  { name: "socket.io-sharded", title: "socket.io, redis-adapter (sharded)", packages: ["socket.io-client"] },
  {
    name: "socket.io-streams",
    title: "socket.io, redis-streams-adapter",
    packages: ["@socket.io/redis-streams-adapter", "@redis/client"],
  },
];
