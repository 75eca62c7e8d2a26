"""An editor that is connected to a host in this process, over an in-memory connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from holdfast.acp.messages import ClientCapabilities, InitializeParams
from holdfast.acp.methods import SessionMethods
from holdfast.acp.serve import SessionDefaults
from holdfast.host.host import Host
from holdfast.model.event import Decision
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import ACP_CANCEL
from holdfast.wire.messages import Notification, Request
from holdfast.wire.peer import Peer

TIMEOUT_SECONDS = 30.0


class Zed:
    """An editor that records what the agent sends."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.params: list[dict[str, Any]] = []
        """The params of each update: the session's id, and the update."""
        self.asked: list[dict[str, Any]] = []
        """The params of each request of the agent."""
        self.is_asked = asyncio.Event()
        self.answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.withdrawn = asyncio.Event()
        self._changed = asyncio.Event()
        self.peer = Peer(
            on_request=self._answer, on_notification=self._on_notification, cancel_method=ACP_CANCEL
        )

    async def request(self, method: str, **params: Any) -> Any:
        return msgspec.json.decode(await self.peer.request(method, params))

    async def prompt(self, session: str, text: str) -> str:
        params: Any = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        return (await self.request("session/prompt", **params))["stopReason"]

    def shown(self, kind: str) -> list[str]:
        """The texts of the messages of this kind, one for each message."""
        texts: dict[str, str] = {}
        for update in self.received:
            if update["sessionUpdate"] == kind:
                texts[update["messageId"]] = texts.get(update["messageId"], "") + update["content"]["text"]
        return [*texts.values()]

    def statuses(self) -> list[str]:
        return [update["status"] for update in self.received if "toolCallId" in update]

    async def _answer(self, request: Request) -> Any:
        self.asked.append(msgspec.json.decode(request.params))
        self.is_asked.set()
        try:
            decision = await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise
        return {"outcome": {"outcome": "selected", "optionId": decision}}

    def _on_notification(self, notification: Notification) -> None:
        params = msgspec.json.decode(notification.params)
        self.params.append(params)
        self.received.append(params["update"])
        self._changed.set()

    async def wait_until(self, condition: "Callable[[Zed], Any]") -> Any:
        """Wait until the condition holds, and return its value."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (value := condition(self)):
                self._changed.clear()
                await self._changed.wait()
            return value

    def updates(self, *kinds: str) -> list[dict[str, Any]]:
        return [update for update in self.received if update["sessionUpdate"] in kinds]


@asynccontextmanager
async def connected(
    host: Host, capabilities: ClientCapabilities | None = None, editor: Zed | None = None
) -> AsyncIterator[Zed]:
    """An editor with a connection of its own."""
    async with AsyncExitStack() as stack:
        zed = editor or Zed()
        client = InitializeParams(
            protocol_version=1, client_capabilities=capabilities or ClientCapabilities()
        )

        async def handle(request: Request) -> Any:
            return await methods.handle(request, client)

        def notify(notification: Notification) -> None:
            methods.on_notification(notification)

        ours = Peer(
            on_request=handle,
            on_notification=notify,
            cancel_method=ACP_CANCEL,
        )
        methods = SessionMethods(host, SessionDefaults(), ours)
        await stack.enter_async_context(connect_memory(ours, zed.peer))
        yield zed
        await methods.stop()
        await methods.leave_all()
