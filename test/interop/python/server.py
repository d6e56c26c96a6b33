"""Serves on a free port of this machine, which it prints."""

import asyncio

import websockets
from peer import Failure, Peer, say

gates = {}


def gate(name):
    return gates.setdefault(name, asyncio.get_running_loop().create_future())


async def add(_peer, params):
    return sum(params if isinstance(params, list) else params.values())


async def echo(_peer, params):
    return params


async def attic(_peer, _params):
    raise Failure({"code": 4711, "message": "no such room", "data": {"room": "attic"}})


async def wait(_peer, params):
    return await gate(params[0])


async def release(_peer, params):
    gate(params[0]).set_result(params[0])


async def note(_peer, params):
    say(noted=params)


async def ask(peer, params):
    return f"you said {await peer.call('confirm', params)}"


async def twice(peer, _params):
    """Calls its caller back by a batch."""
    return [reply["result"] for reply in await peer.batch([["confirm", {"question": q}, True] for q in "ab"])]


METHODS = dict(add=add, echo=echo, attic=attic, wait=wait, release=release, note=note, ask=ask, twice=twice)


async def handle(socket):
    try:
        await Peer(socket, METHODS).run()
    except websockets.ConnectionClosed:
        pass


async def main():
    async with websockets.serve(handle, "127.0.0.1", 0, max_size=2**24, ping_timeout=None) as server:
        say(port=server.sockets[0].getsockname()[1])
        await asyncio.Future()


asyncio.run(main())
