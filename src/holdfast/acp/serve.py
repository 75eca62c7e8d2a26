"""Serve one editor on standard input and output, until it leaves."""

import asyncio
import signal
from contextlib import AsyncExitStack

from holdfast.acp.editor import Editor, Terms
from holdfast.agent.manual import Manual
from holdfast.host import Host
from holdfast.settings import Settings
from holdfast.wire.peer import ACP, Peer
from holdfast.wire.pipe import over_stdio

_GRACE = 2.0


async def serve(settings: Settings, terms: Terms) -> None:
    """Answer the editor. At the end of input, SIGTERM or SIGINT every server is closed and every event is on disk."""
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    async with AsyncExitStack() as stack:
        # The host opens while the editor introduces itself.
        opening = asyncio.create_task(stack.enter_async_context(Host(settings=settings)))

        async def host() -> Host:
            return await asyncio.shield(opening)

        editor = Editor(host, Manual(), terms)
        editor.peer = Peer(
            handle=editor.handle,
            notice=editor.notice,
            dialect=ACP,
            limits=settings.wire,
            answers_malformed=True,
        )
        async with over_stdio(editor.peer, grace=_GRACE):
            ended = asyncio.create_task(editor.peer.ended.wait())
            left = asyncio.create_task(leaving.wait())
            await asyncio.wait((ended, left), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            left.cancel()
        await opening
