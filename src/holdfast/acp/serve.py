"""Serve one editor on standard input and output, until it leaves."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from holdfast.acp.greeting import INITIALIZE, Greeting
from holdfast.acp.refusal import refusal
from holdfast.acp.terms import Terms
from holdfast.model.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.wire.frame import Notification, Request
from holdfast.wire.peer import ACP, Peer, PeerError
from holdfast.wire.pipe import over_stdio

if TYPE_CHECKING:
    from holdfast.acp.editor import Editor
    from holdfast.agent.agent import Agent

_GRACE = 2.0
"""How long turns may go on when the editor has left, and how long their end may take."""
# The store's thread needs Python for a moment between its statements. At the default of 5 ms it waits for that most of the
# time, and its work is not done beside ours but after it: 90,000 updates/s, durable each, and 115,000 with this.
_SWITCH_SECONDS = 0.0002


async def serve(settings: Settings, terms: Terms, agent: "Callable[[], Agent] | None" = None) -> None:
    """Answer the editor. At the end of input, SIGTERM, SIGINT or SIGHUP every server is closed and every event is on disk."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
            loop.add_signal_handler(number, leaving.set)
    async with AsyncExitStack() as stack:
        front = _Front(settings, terms, agent, stack)
        front.peer = Peer(
            handle=front.handle,
            notice=front.notice,
            dialect=ACP,
            limits=settings.wire,
            answers_malformed=True,
        )
        async with over_stdio(front.peer, grace=_GRACE):
            told_to_leave = asyncio.create_task(leaving.wait())
            await _first(asyncio.create_task(front.peer.ended.wait()), told_to_leave)
            # What was asked before the editor left is still answered, unless there is a hurry.
            await _first(asyncio.create_task(front.idle()), told_to_leave, timeout=_GRACE)
            stopping = asyncio.create_task(front.stop())
            await asyncio.wait([stopping], timeout=_GRACE)
            told_to_leave.cancel()
        await stopping


async def _first(*tasks: asyncio.Task[Any], timeout: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    tasks[0].cancel()


class _Front:
    """Answers the introduction at once; what sessions need is loaded behind it."""

    def __init__(
        self,
        settings: Settings,
        terms: Terms,
        agent: "Callable[[], Agent] | None",
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._terms = terms
        self._agent = agent
        self._stack = stack
        self._greeting = Greeting()
        self._opening: asyncio.Task[Editor] | None = None
        self._editor: Editor | None = None
        self.peer: Peer

    async def handle(self, request: Request) -> Any:
        """Answer one request, or say why not and what to do."""
        try:
            return await self._answer(request)
        except PeerError:  # it is the editor's own
            raise
        except HoldfastError as error:
            raise refusal(error, request) from error

    async def _answer(self, request: Request) -> Any:
        if request.method == INITIALIZE:
            answer = self._greeting.answer(request)
            self._behind()
            return answer
        client = self._greeting.check(request)
        editor = await asyncio.shield(self._behind())
        return await editor.handle(request, client)

    def _behind(self) -> "asyncio.Task[Editor]":
        """What answers about sessions; where it could not be opened, as on a full disk, it is tried again."""
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._opening = asyncio.create_task(self._open())
        return opening

    def notice(self, notification: Notification) -> None:
        """Hear a notification; one that comes early is heard behind the requests that came before it."""
        if self._editor is not None:
            self._editor.notice(notification)
        else:
            asyncio.get_running_loop().call_soon(self._notice_late, notification)

    def _notice_late(self, notification: Notification) -> None:
        """By now whatever came before it waits for the same; after that there is an editor, or nothing to hear."""

        def notice(_: object) -> None:
            if self._editor is not None:
                self._editor.notice(notification)

        if self._opening is not None:
            self._opening.add_done_callback(notice)

    async def idle(self) -> None:
        """Wait until nothing that was asked is unanswered."""
        await self.peer.idle()

    async def stop(self) -> None:
        """End every turn as cancelled, stored and told."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._editor is not None:
            await self._editor.stop()

    async def _open(self) -> "Editor":
        editor, host = await asyncio.to_thread(_load)
        opened = await self._stack.enter_async_context(host(settings=self._settings))
        self._editor = editor(opened, (self._agent or _manual)(), self._terms, self.peer)
        return self._editor


def _load() -> "tuple[type[Editor], Any]":
    """Import what the introduction does without."""
    from holdfast.acp.editor import Editor
    from holdfast.host import Host

    return Editor, Host


def _manual() -> "Agent":
    from holdfast.agent.manual import Manual

    return Manual()
