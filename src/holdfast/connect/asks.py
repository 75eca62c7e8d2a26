"""What a server may ask back: the session's roots, the person, the client's model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.ports import Door
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.model.trust import Trust
from holdfast.wire.frame import Raw

ROOTS, SAMPLING, ELICITATION = "roots/list", "sampling/createMessage", "elicitation/create"


def _nobody() -> None:
    pass


class Asks:
    """Answers one server: roots from the session, the rest by the front door where it can, else not at all."""

    def __init__(
        self,
        spec: ServerSpec,
        scope: Scope | None,
        door: Door | None = None,
        tools_changed: Callable[[], None] = _nobody,
    ) -> None:
        self._spec = spec
        self._scope = scope
        self._door = door
        self.tools_changed = tools_changed
        """Called when the server says that its tools have changed."""

    @property
    def capabilities(self) -> JsonObject:
        """What to tell the server that it may ask for."""
        offered: JsonObject = {}
        if self._may_roots():
            offered["roots"] = {}
        if self._may_elicit():
            offered["elicitation"] = {}
        if self._may_sample():
            offered["sampling"] = {}
        return offered

    async def answer(self, method: str, params: Raw) -> Any:
        """Answer one question of the server's."""
        if method == "ping":
            return {}
        if method == ROOTS and self._may_roots() and self._scope is not None:
            return {"roots": [{"uri": Path(root).as_uri()} for root in self._scope.context.roots]}
        if method == ELICITATION and self._may_elicit() and self._door is not None:
            return await self._door.elicit(msgspec.json.decode(params))
        if method == SAMPLING and self._may_sample() and self._door is not None:
            return await self._door.sample(msgspec.json.decode(params))
        if method in (ROOTS, ELICITATION, SAMPLING):
            raise HoldfastError(codes.NOT_GRANTED, f"{method} is not open to this server in this session.")
        raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")

    def _may_roots(self) -> bool:
        return self._scope is not None and self._may("roots")

    def _may_elicit(self) -> bool:
        return self._door is not None and self._door.powers.elicits and self._may("elicitation")

    def _may_sample(self) -> bool:
        return self._door is not None and self._door.powers.samples and self._may("sampling")

    def _may(self, what: str) -> bool:
        if not isinstance(self._spec.transport, Http | Sse):
            return self._spec.may_ask(what)
        # A remote server has no use for local paths, and no walls to tell that its session is sandboxed.
        sandboxed = self._scope is not None and self._scope.context.trust_level is Trust.SANDBOXED
        return self._spec.asks.allows(what) if what == "roots" or sandboxed else self._spec.may_ask(what)
