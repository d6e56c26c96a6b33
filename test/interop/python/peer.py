"""JSON-RPC 2.0 over a WebSocket of the `websockets` package: one end, which calls and is called."""

import asyncio
import itertools
import json
import sys


class Failure(Exception):
    """An error that crosses the wire."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.error = error


class Peer:
    def __init__(self, socket, methods):
        self.socket = socket
        self.methods = methods
        self.ids = itertools.count(0)
        self.waiting = {}
        self.tasks = set()

    async def run(self):
        """Handles messages until the connection ends, and then fails all pending calls."""
        try:
            async for text in self.socket:
                message = json.loads(text)
                is_reply = isinstance(message, dict) and "method" not in message
                if is_reply or (isinstance(message, list) and all("method" not in one for one in message)):
                    self.settle(message)
                else:
                    task = asyncio.ensure_future(self.answer(message))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
        finally:
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(Failure({"code": -1, "message": "the connection is closed"}))

    def settle(self, reply):
        # A batch waits under the ids of its requests, in their order.
        key = tuple(one["id"] for one in reply) if isinstance(reply, list) else reply["id"]
        future = self.waiting.pop(key, None)
        if future is not None:
            future.set_result(reply)

    async def answer(self, message):
        if isinstance(message, list):
            replies = [reply for reply in await asyncio.gather(*map(self.serve, message)) if reply is not None]
            reply = replies or None
        else:
            reply = await self.serve(message)
        if reply is not None and self.socket.open:
            await self.socket.send(json.dumps(reply))

    async def serve(self, message):
        try:
            method = self.methods.get(message["method"])
            if method is None:
                raise Failure({"code": -32601, "message": "Method not found"})
            outcome = {"result": await method(self, message.get("params"))}
        except Failure as failure:
            outcome = {"error": failure.error}
        return {"jsonrpc": "2.0", "id": message["id"], **outcome} if "id" in message else None

    async def send_and_wait(self, key, message):
        future = self.waiting[key] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps(message))
        return await future

    async def call(self, method, params):
        call = self.message(method, params, True)
        reply = await self.send_and_wait(call["id"], call)
        if "error" in reply:
            raise Failure(reply["error"])
        return reply["result"]

    async def notify(self, method, params):
        await self.socket.send(json.dumps(self.message(method, params, False)))

    async def batch(self, members):
        batch = [self.message(*member) for member in members]
        return await self.send_and_wait(tuple(one["id"] for one in batch if "id" in one), batch)

    def message(self, method, params, is_call):
        message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        if is_call:
            message["id"] = next(self.ids)
        return message


async def commands():
    """The lines of standard input, which are the commands of the test."""
    reader = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


def say(**what):
    """Reports to the test."""
    print(json.dumps(what), flush=True)
