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
                members = message if isinstance(message, list) else [message]
                if any("method" in one for one in members):
                    task = asyncio.ensure_future(self.answer(members, isinstance(message, list)))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
                    continue
                for reply in members:
                    self.waiting.pop(reply["id"], asyncio.Future()).set_result(reply)
        finally:
            for future in self.waiting.values():
                future.set_exception(Failure({"code": -1, "message": "the connection is closed"}))

    async def answer(self, members, is_batch):
        replies = [reply for reply in await asyncio.gather(*map(self.serve, members)) if reply is not None]
        if replies and self.socket.open:
            await self.socket.send(json.dumps(replies if is_batch else replies[0]))

    async def serve(self, message):
        try:
            method = self.methods.get(message["method"])
            if method is None:
                raise Failure({"code": -32601, "message": "Method not found"})
            outcome = {"result": await method(self, message.get("params"))}
        except Failure as failure:
            outcome = {"error": failure.error}
        return {"jsonrpc": "2.0", "id": message["id"], **outcome} if "id" in message else None

    async def call(self, method, params):
        [reply] = await self.batch([[method, params, True]])
        if "error" in reply:
            raise Failure(reply["error"])
        return reply["result"]

    async def notify(self, method, params):
        await self.batch([[method, params, False]])

    async def batch(self, members):
        """Sends one message or several, and returns the replies to those that are calls, in their order."""
        messages, replies = [], []
        for method, params, is_call in members:
            message = {"jsonrpc": "2.0", "method": method}
            if params is not None:
                message["params"] = params
            if is_call:
                message["id"] = next(self.ids)
                replies.append(asyncio.get_running_loop().create_future())
                self.waiting[message["id"]] = replies[-1]
            messages.append(message)
        await self.socket.send(json.dumps(messages if len(messages) > 1 else messages[0]))
        return await asyncio.gather(*replies)


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
