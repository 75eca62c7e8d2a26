"""Requests that a running call sends to its client: questions to the user, samples from its model, its roots."""

import asyncio
import itertools
from contextlib import suppress
from typing import Any, ClassVar

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.errors import ToolError
from holdfast.wire.mcp.server import Ask
from holdfast.wire.messages import PeerError, Raw

ANSWER_SECONDS = 600.0
"""How long a client may take to answer: a person may have to decide."""

_NO_CAPABILITIES: JsonObject = {}


class ClientRequests:
    """Sends the requests of one call. With this base class, each request fails, as if the client had declared no capabilities."""

    can_send: ClassVar[bool] = False
    """True if this object belongs to one call and can reach its client."""

    def __init__(self, capabilities: JsonObject = _NO_CAPABILITIES) -> None:
        self.capabilities = capabilities
        self.deadline: asyncio.Timeout | None = None
        """The deadline of the call. It does not run while the call waits for its client."""
        self.waited_seconds = 0.0
        """Seconds that the call has waited for its client."""
        self._waiting = 0
        """How many requests wait for an answer: a handler may send several at the same time."""
        self._waiting_since = 0.0
        """When the first of the requests that wait was sent."""
        self._seconds_left: float | None = None
        """What was left of the deadline when it was paused."""
        self._numbers = itertools.count(1)

    def progress_token(self, meta: JsonObject) -> Any:
        """The token for progress notifications, in the `_meta` of the newest request."""
        return meta.get("progressToken")

    async def request(self, method: str, params: JsonObject, *, needs: str, key: str = "") -> Raw:
        """Send a request and wait for the result.

        Raises MISSING_CAPABILITY if the client did not declare the capability that the request `needs`, such as
        `elicitation.url`. The `key` names the request in the modern era; by default requests are numbered.
        """
        self._check_capability(needs)
        key = key or f"{needs.replace('.', '_')}_{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        self._begin_waiting(loop)
        try:
            return await self._send(method, params, key)
        except PeerError as error:
            if error.rpc_code == codes.METHOD_NOT_FOUND.rpc_code:
                raise _missing(needs) from None
            raise ToolError(
                codes.PEER_ERROR,
                f"The client refused {method}: {error.message[:500]}",
                rpc_code=error.rpc_code,
            ) from None
        finally:
            self._end_waiting(loop)

    async def _send(self, method: str, params: JsonObject, key: str) -> Raw:
        raise _missing(method)

    def _check_capability(self, needs: str) -> None:
        """Check that the client declared a capability, such as `sampling` or `elicitation.url`."""
        name, _, part = needs.partition(".")
        declared = self.capabilities.get(name)
        if not isinstance(declared, dict):
            raise _missing(needs)
        # A client with an empty `elicitation` supports forms only: older versions of MCP had nothing else.
        if part and part not in declared and not (part == "form" and "url" not in declared):
            raise _missing(needs)

    def _begin_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count a request that waits. The first one pauses the deadline."""
        self._waiting += 1
        if self._waiting > 1:
            return
        self._waiting_since = loop.time()
        if self.deadline is not None and (when := self.deadline.when()) is not None:
            with suppress(RuntimeError):  # the handler has ended, or its deadline has passed
                self.deadline.reschedule(None)
                self._seconds_left = when - loop.time()

    def _end_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop counting a request that waits. The last one resumes the deadline."""
        self._waiting -= 1
        if self._waiting:
            return
        self.waited_seconds += loop.time() - self._waiting_since
        if self.deadline is not None and self._seconds_left is not None:
            with suppress(RuntimeError):  # the handler has ended already
                self.deadline.reschedule(loop.time() + self._seconds_left)
            self._seconds_left = None


NO_CLIENT = ClientRequests()
"""For calls whose client has no capabilities, and for calls without a client."""


class _NoCallParameter(ClientRequests):
    async def request(self, method: str, params: JsonObject, *, needs: str, key: str = "") -> Raw:
        raise HoldfastError(
            codes.BAD_TOOL,
            "A handler that asks its client, also through current_call(), needs a parameter of the type Call: `call: Call`.",
        )


NO_CALL_PARAMETER = _NoCallParameter()
"""For calls whose handler, guards and providers do not get the call."""


class _WithoutHandler(ClientRequests):
    async def request(self, method: str, params: JsonObject, *, needs: str, key: str = "") -> Raw:
        raise ToolError(
            codes.MISSING_CAPABILITY,
            "The client cannot be asked during a completion or a subscription.",
            hint="The server's author can ask in the handler of the tool, the resource or the prompt.",
            capability=needs,
        )


CANNOT_ASK = _WithoutHandler()
"""For completions, and for guards that are checked before a completion or a subscription."""


class DirectRequests(ClientRequests):
    """Sends each request to the client at once, as in the handshake era."""

    can_send = True

    def __init__(self, capabilities: JsonObject, ask: Ask) -> None:
        super().__init__(capabilities)
        self._ask = ask

    async def _send(self, method: str, params: JsonObject, key: str) -> Raw:
        return await self._ask(method, params, timeout=ANSWER_SECONDS)


def _missing(needs: str) -> HoldfastError:
    return ToolError(
        codes.MISSING_CAPABILITY,
        f"The call needs a client with the capability {needs!r}, which this client does not have.",
        capability=needs,
    )
