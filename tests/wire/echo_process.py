"""A JSON-RPC server on standard input and output that returns the params of each request."""

import asyncio
from typing import Any

from holdfast.wire.messages import Request
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_stdio


async def echo(request: Request) -> Any:
    if request.method == "print":
        print("printed")
    return request.params


async def main() -> None:
    peer = Peer(on_request=echo, answers_malformed=True)
    async with connect_stdio(peer):
        await peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
