/** The server of one contender as a process: tells its parent where it listens, and ends with it. */
const { path = "/", serve } = await import(`./adapters/${process.argv[2]}.js`);
process.on("disconnect", () => process.exit());
process.send({ port: await serve(), path });
