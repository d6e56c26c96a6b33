/** The process with the server of one contender. It sends its URL to its parent, and ends with the parent. */
const { path = "/", serve } = await import(`./adapters/${process.argv[2]}.js`);
process.on("disconnect", () => process.exit());
process.send({ port: await serve(), path });
