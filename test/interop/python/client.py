"""Connects to the given address, and runs the commands of its standard input, one a line."""

import asyncio
import sys

import websockets
from peer import Failure, Peer, commands, say


async def confirm(_peer, params):
    return f"yes to {params['question']}"


async def outcome(number, what):
    try:
        say(settled=number, result=await what)
    except Failure as failure:
        say(settled=number, error=failure.error)


async def tick(_peer, params):
    say(pushed=["tick", params])


async def main(url):
    socket = await websockets.connect(url, open_timeout=None, ping_timeout=None)
    peer = Peer(socket, {"confirm": confirm, "tick": tick})
    running = asyncio.ensure_future(peer.run())
    tasks = []
    say(open=websockets.__version__)
    async for command in commands():
        if "call" in command:
            tasks.append(asyncio.ensure_future(outcome(command["id"], peer.call(command["call"], command.get("params")))))
        elif "batch" in command:
            tasks.append(asyncio.ensure_future(outcome(command["id"], peer.batch(command["batch"]))))
        elif "notify" in command:
            await peer.notify(command["notify"], command.get("params"))
        elif "close" in command:
            await socket.close()
            await asyncio.wait([running, *tasks])
            say(closed=True)


asyncio.run(main(sys.argv[1]))
