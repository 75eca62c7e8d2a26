"""Requests from a server to the host: roots, elicitation, sampling."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from holdfast.connect.elicitation import sanitize_elicitation
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.model.trust import Trust
from holdfast.wire.frame import Raw
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.strict_json import make_decoder

ROOTS, SAMPLING, ELICITATION = "roots/list", "sampling/createMessage", "elicitation/create"
_ANSWER_SECONDS = 0.0001  # about the time to answer one request, besides the parts that are measured
_COPY_SECONDS_PER_BYTE = 2e-9  # about the time to copy and send an answer
_MAX_OPEN_QUESTIONS = 3


def _ignore() -> None:
    pass


class ServerRequests:
    """Answers the requests of one server: roots from the session's context, the others through the session's door."""

    def __init__(
        self,
        spec: ServerSpec,
        scope: Scope | None,
        door: Door | None = None,
        on_tools_changed: Callable[[], None] = _ignore,
    ) -> None:
        self._spec = spec
        self._scope = scope
        self._door = door
        self._open_questions = 0
        self._encoded_roots: tuple[tuple[str, ...], Raw] | None = None
        # A server that sessions share has a throttle of its own.
        self.throttle = (
            scope.throttle
            if scope is not None
            else LoopThrottle(f"server {spec.name}", burst_seconds=BURST_SECONDS)
        )
        """Limits how much of the event loop's time the server's messages, and the answers to them, take."""
        self.on_tools_changed = on_tools_changed
        """Called when the server announces that its tools have changed."""

    @property
    def capabilities(self) -> JsonObject:
        """The client capabilities to announce to the server."""
        capabilities: JsonObject = {}
        if self._can_list_roots():
            capabilities["roots"] = {}
        if self._can_elicit():
            capabilities["elicitation"] = {}
        if self._can_sample():
            capabilities["sampling"] = {}
        return capabilities

    async def answer(self, method: str, params: Raw) -> Any:
        """Answer one request, or raise if the session does not allow it."""
        self.throttle.charge(_ANSWER_SECONDS)
        if self.throttle.must_wait(monotonic()):
            await self.throttle.pause()
        if method == "ping":
            return {}
        if method == ROOTS and self._can_list_roots() and self._scope is not None:
            return self._list_roots(self._scope.context.roots)
        if method == ELICITATION and self._can_elicit() and self._door is not None:
            return await self._elicit(self._door, params)
        if method == SAMPLING and self._can_sample() and self._door is not None:
            return await self._door.sample(make_decoder(JsonObject)(params))
        if method in (ROOTS, ELICITATION, SAMPLING):
            raise HoldfastError(codes.NOT_GRANTED, f"This server may not use {method} in this session.")
        raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")

    def _list_roots(self, roots: tuple[str, ...]) -> Raw:
        """The answer with these roots. It is encoded once; the throttle's owner is charged for the time to copy it."""
        if self._encoded_roots is None or self._encoded_roots[0] is not roots:
            answer = {"roots": [{"uri": Path(root).as_uri()} for root in roots]}
            self._encoded_roots = (roots, Raw(msgspec.json.encode(answer)))
        _, encoded = self._encoded_roots
        self.throttle.charge(len(encoded) * _COPY_SECONDS_PER_BYTE)
        return encoded

    async def _elicit(self, door: Door, params: Raw) -> JsonObject:
        """Ask the user. Raise BUSY if this server already has too many open questions."""
        if self._open_questions >= _MAX_OPEN_QUESTIONS:
            raise HoldfastError(
                codes.BUSY,
                f"This server already has {_MAX_OPEN_QUESTIONS} open questions. Ask again after an answer.",
            )
        is_restricted = self._spec.confinement is not None or self._spec.is_confined or self._is_sandboxed
        began = monotonic()
        try:
            question = sanitize_elicitation(self._spec, params, is_restricted=is_restricted)
        finally:
            self.throttle.charge_since(began)  # a refused question takes as long to check as any other
        self._open_questions += 1
        try:
            return await door.elicit(question)
        finally:
            self._open_questions -= 1

    @property
    def _is_sandboxed(self) -> bool:
        return self._scope is not None and self._scope.context.trust_level is Trust.SANDBOXED

    def _can_list_roots(self) -> bool:
        return self._scope is not None and self._is_allowed("roots")

    def _can_elicit(self) -> bool:
        return (
            self._door is not None and self._door.capabilities.elicitation and self._is_allowed("elicitation")
        )

    def _can_sample(self) -> bool:
        return self._door is not None and self._door.capabilities.sampling and self._is_allowed("sampling")

    def _is_allowed(self, what: str) -> bool:
        if not isinstance(self._spec.transport, Http | Sse):
            # Every question names the server, so in a direct session even a confined server may ask the user.
            is_question = what == "elicitation" and self._scope is not None and not self._is_sandboxed
            return is_question or self._spec.may_request(what)
        # `may_request` allows everything to a server that is not confined, and remote servers never are. So a remote
        # server needs an explicit grant for local paths, and in a sandboxed session for every kind of request.
        return (
            self._spec.allowed_requests.allows(what)
            if what == "roots" or self._is_sandboxed
            else self._spec.may_request(what)
        )
