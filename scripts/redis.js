/** Starts a Redis for one run of the demo or of a benchmark: on a free port of this machine, and without files. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";

const NAMES = ["redis-server", "valkey-server"];
const CURE =
  "No redis-server was found. Install Redis 6.2 or later (apt-get install redis-server), or set REDIS_SERVER_PATH to one.";
/** How often Redis is started on another port, if its port was taken meanwhile. */
const STARTS = 5;

/**
 * Starts a Redis, on a free port unless `port` names one. Resolves when it accepts connections. Rejects with the cure if there is no
 * Redis. The process ends with this one. `stop` ends it, and resolves when it has ended. With `isDetached`, signals of the terminal do not reach Redis, so that it ends last:
 * the caller handles them, and calls `stop`.
 */
export async function startRedis({ isDetached = false, port: givenPort } = {}) {
  const path = redisPath();
  const folder = await mkdtemp(join(tmpdir(), "reciproc-redis-"));
  for (let i = 1; ; i++) {
    const port = givenPort ?? (await freePort());
    try {
      const { stop } = await startAt(path, port, folder, isDetached);
      return { url: `redis://127.0.0.1:${port}`, stop };
    } catch (error) {
      if (i < STARTS && error.code === undefined) continue;
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }
}

/** Returns the path of a Redis. Throws an error with the cure if there is none. */
export function redisPath() {
  const given = process.env.REDIS_SERVER_PATH;
  if (given !== undefined && given !== "") return given;
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  const found = NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(canRun);
  if (found === undefined) throw new Error(CURE);
  return found;
}

function canRun(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function startAt(path, port, folder, detached) {
  const settings = { bind: "127.0.0.1", port, dir: folder, save: "", appendonly: "no" };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn(path, args, { stdio: ["ignore", "pipe", "inherit"], detached });
  // Rejects if the program cannot be run.
  await once(child, "spawn");
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const ended = once(child, "exit").finally(() => process.off("exit", kill));
  const stop = async () => {
    kill();
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  const output = [];
  for await (const line of createInterface(child.stdout)) {
    output.push(line);
    if (line.includes("Ready to accept connections")) {
      child.stdout.resume();
      return { stop };
    }
  }
  await ended;
  throw new Error(`redis-server ended with ${child.exitCode}:\n${output.join("\n")}`);
}
