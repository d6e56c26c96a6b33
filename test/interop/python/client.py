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


async def hang(_peer, _params):
    say(hanging=True)
    await asyncio.get_running_loop().create_future()


async def main(url):
    socket = await websockets.connect(url)
    peer = Peer(socket, {"confirm": confirm, "tick": tick, "hang": hang})
    running = asyncio.ensure_future(peer.run())
    running.add_done_callback(lambda _: say(closed=[socket.close_code, socket.close_reason]))
    tasks = []
    say(open=websockets.__version__)
    async for command in commands():
        if "call" in command:
            tasks.append(asyncio.ensure_future(outcome(command["id"], peer.call(command["call"], command.get("params")))))
        elif "batch" in command:
            tasks.append(asyncio.ensure_future(outcome(command["id"], peer.batch(command["batch"]))))
        elif "notify" in command:
            await peer.notify(command["notify"], command.get("params"))
        elif "raw" in command:
            await socket.send(bytes(command["raw"], "utf8") if command.get("binary") else command["raw"])
        elif "close" in command:
            await socket.close()


asyncio.run(main(sys.argv[1]))
