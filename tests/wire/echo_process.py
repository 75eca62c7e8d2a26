"""A JSON-RPC server on standard input and output that sends params back: what the hostile tests attack."""

import asyncio
from typing import Any

from holdfast.wire.frame import Request
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import over_stdio


async def echo(request: Request) -> Any:
    if request.method == "print":
        print("a stray word")
    return request.params


async def main() -> None:
    peer = Peer(handle=echo, answers_malformed=True)
    async with over_stdio(peer):
        await peer.ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
