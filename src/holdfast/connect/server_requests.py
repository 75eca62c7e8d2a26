"""Requests from a server to the host: roots, elicitation, sampling."""

import shlex
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.connect.elicitation import sanitize_elicitation
from holdfast.connect.relay import Relay
from holdfast.connect.scope import Scope
from holdfast.connect.server_log import ServerLog
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.meta_keys import READ_ONLY_KEY
from holdfast.model.normal_form import fold_key
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.model.trust import Trust
from holdfast.wire.loop_throttle import BURST_SECONDS, LoopThrottle
from holdfast.wire.messages import PeerError, Raw, encode
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

ROOTS, SAMPLING, ELICITATION = "roots/list", "sampling/createMessage", "elicitation/create"
_CAPABILITY_OF = {ROOTS: "roots", SAMPLING: "sampling", ELICITATION: "elicitation"}
_FIRST_REQUESTS = ("initialize", "server/discover")  # requests that only clients send
OWN_KEY_PREFIX = "holdfast-"
"""Holdfast's own questions to a modern client have keys with this prefix."""
_decode_members = make_decoder(dict[str, Raw])
_decode_text = make_decoder(str)
INPUT_REQUIRED = "input_required"
_RESULT_TYPE, _INPUT_REQUESTS = "resultType", "inputRequests"
_QUESTION_MEMBERS = frozenset({_RESULT_TYPE, _INPUT_REQUESTS, "requestState"})
_FOLDED_QUESTION_MEMBERS = frozenset(name.casefold() for name in _QUESTION_MEMBERS)
_COMPLETE = Raw(b'"complete"')
_USUAL_MEMBERS = _QUESTION_MEMBERS | {"content", "structuredContent", "isError", "_meta"}
URL_ELICITATION_REQUIRED, _INTERNAL_ERROR = -32042, -32603  # error codes of MCP and JSON-RPC
_ANSWER_SECONDS = 0.0001  # about how long it takes to answer a request, without the parts that are measured
_COPY_SECONDS_PER_BYTE = 2e-9  # about how long it takes to copy and send an answer
_MAX_OPEN_QUESTIONS = 3


class _Question(msgspec.Struct, omit_defaults=True):
    """A member of `inputRequests`."""

    method: str
    params: Raw = Raw(b"{}")


class _PagesToOpen(msgspec.Struct):
    """The data of the error `URL_ELICITATION_REQUIRED`."""

    elicitations: list[JsonObject]


_decode_questions = make_decoder(dict[str, _Question])
_decode_pages = make_decoder(_PagesToOpen)
T = TypeVar("T")

FindReadOnly: TypeAlias = Callable[[Sequence[str]], Awaitable[list[str]]]
"""Finds the paths that a sandboxed session with these roots may not change now."""


def without_disguised_questions(raw: Raw) -> Raw:
    """A modern server's result without members such as `InputRequests`, whose names differ from those of questions only in case.

    A client that ignores case would show such a question, which nothing has sanitized.
    """
    try:
        members: dict[str, Raw] = _decode_members(raw)
    except DECODE_ERRORS:
        return raw
    return Raw(msgspec.json.encode(members)) if _remove_disguised(members) else raw


def _remove_disguised(members: dict[str, Raw]) -> bool:
    """Remove the members whose names differ from `_QUESTION_MEMBERS` only in case. Return whether there were any."""
    if members.keys() <= _USUAL_MEMBERS:
        return False
    disguised = [
        name
        for name in members
        if name not in _QUESTION_MEMBERS and name.casefold() in _FOLDED_QUESTION_MEMBERS
    ]
    for name in disguised:
        del members[name]
    return bool(disguised)


def _ignore() -> None:
    pass


async def every_root(roots: Sequence[str]) -> list[str]:
    """Every root: nothing may be changed."""
    return [*roots]


class ServerRequests:
    """Answers the requests of one server: roots from the session's context, elicitation and sampling through the session's door.

    In a session of a gateway client, that client answers instead, except for roots in the cases of `_must_protect_files`
    and `_must_list_own_roots`.
    """

    def __init__(
        self,
        spec: ServerSpec,
        scope: Scope | None,
        door: Door | None = None,
        on_tools_changed: Callable[[], None] = _ignore,
        find_read_only: FindReadOnly = every_root,
    ) -> None:
        self.spec = spec
        self._scope = scope
        self._door = door
        self._find_read_only = find_read_only
        self._open_questions = 0
        self._encoded_roots: tuple[tuple[str, ...], Raw] | None = None
        # A server that sessions share has a throttle of its own.
        self.throttle = (
            scope.throttle
            if scope is not None
            else LoopThrottle(f"server {spec.name}", burst_seconds=BURST_SECONDS)
        )
        """Limits how much of the event loop's time the server's messages, and the answers, take."""
        self.on_tools_changed = on_tools_changed
        self.server_log: ServerLog | None = None
        """The log of a local server, once its connection is being opened; None if no log is kept."""

    @property
    def capabilities(self) -> JsonObject:
        """The client capabilities to announce to the server."""
        if self.relay is not None:
            return self.allowed_capabilities(self.relay.capabilities)
        capabilities: JsonObject = {}
        if self._can_list_roots():
            capabilities["roots"] = {}
        if self._can_elicit():
            # An empty object would mean forms only.
            by_url: JsonObject = {"url": {}} if self._can_elicit_by_url() else {}
            capabilities["elicitation"] = {"form": {}, **by_url}
        if self._can_sample():
            capabilities["sampling"] = {}
        return capabilities

    @property
    def relay(self) -> Relay | None:
        """How to reach the gateway's client, if the session has one."""
        return self._scope.session_scope.relay if self._scope is not None else None

    def allowed_capabilities(self, capabilities: JsonObject) -> JsonObject:
        """These capabilities, without those that the server may not use in this session."""
        allowed = {
            name: value
            for name, value in capabilities.items()
            if name not in ("roots", "elicitation", "sampling") or self._is_allowed(name)
        }
        return {**allowed, "roots": {}} if self._must_protect_files or self._must_list_own_roots else allowed

    @property
    def may_pass_on_questions(self) -> bool:
        """Whether a modern client may get the server's questions in the server's own result, sanitized."""
        kinds = ("roots", "elicitation", "sampling")
        return (
            not self._is_restricted
            and not self._must_list_own_roots
            and all(self._is_allowed(kind) for kind in kinds)
        )

    async def answer(self, method: str, params: Raw) -> Any:
        """Answer one request. Raise if the session does not allow it."""
        self.throttle.charge(_ANSWER_SECONDS)
        if self.throttle.must_wait(monotonic()):
            await self.throttle.pause()
        if method == "ping":
            return {}
        if method == ROOTS and self._must_protect_files and self._scope is not None:
            return await self._list_protected_roots(self._scope.context)
        if self.relay is not None:
            return await self._relay_request(self.relay, method, params)
        if method == ROOTS and self._can_list_roots() and self._scope is not None:
            confinement = self.spec.confinement
            return self._list_roots(
                confinement.roots if confinement is not None else self._scope.context.roots
            )
        if method == ELICITATION and self._can_elicit() and self._door is not None:
            return await self._within_question_limit(self._elicit(self._door, params))
        if method == SAMPLING and self._can_sample() and self._door is not None:
            return await self._door.sample(make_decoder(JsonObject)(params))
        advice = "" if self._scope is None else self._scope.session_scope.capability_advice
        if advice and method in (ELICITATION, SAMPLING) and self._is_allowed(_CAPABILITY_OF[method]):
            raise HoldfastError(codes.NOT_GRANTED, f"This session does not answer {method}. {advice}")
        if method == ELICITATION and self._is_allowed("elicitation") and self._door and self._scope:
            context = self._scope.context
            user = ("--user", context.user_id) if context.user_id else ()
            command = shlex.join(["holdfast", "chat", "--resume", context.session_id, *user])
            raise HoldfastError(
                codes.NOT_GRANTED,
                "No editor or terminal of this session can show a server's questions. To open the session in a terminal: "
                f"{command}",
            )
        if method in (ROOTS, ELICITATION, SAMPLING):
            raise HoldfastError(codes.NOT_GRANTED, f"This server may not use {method} in this session.")
        # A program that only repeats its input, such as `cat`, sends Holdfast's first request back. It also repeats this error, so
        # Holdfast gets the error as the answer to that request, and shows it to the user.
        if method in _FIRST_REQUESTS:
            raise HoldfastError(
                codes.METHOD_NOT_FOUND,
                f"It sent Holdfast's own request {method!r} back: it is not an MCP server.",
            )
        raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")

    async def _relay_request(self, relay: Relay, method: str, params: Raw) -> Raw:
        """Answer a request through the gateway's client, if the server may send it."""
        capability = _CAPABILITY_OF.get(method)
        # Other methods are not relayed: some clients may read `Elicitation/create` as a question that nothing has sanitized.
        if capability is None:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")
        if method == ROOTS and self._must_list_own_roots and self._scope is not None:
            return self._list_roots(self._scope.context.roots or (self._scope.context.cwd,))
        if not (capability in relay.capabilities and self._is_allowed(capability)):
            raise HoldfastError(codes.NOT_GRANTED, f"This server may not use {method} in this session.")
        if method == ELICITATION:
            return await self._within_question_limit(self._relay_elicitation(relay, params))
        return await relay.ask(self.spec, method, params)

    async def _relay_elicitation(self, relay: Relay, params: Raw) -> Raw:
        return await relay.ask(self.spec, ELICITATION, Raw(msgspec.json.encode(self._sanitize(params))))

    def sanitize_questions(self, raw: Raw) -> Raw:
        """The result of a modern server for a modern client, with sanitized questions.

        Raise if a question is not valid, may not be shown, or has a key with the prefix of Holdfast's own keys.
        """
        # The values are decoded before they are compared: JSON has many spellings of one text, such as `elicitation\/create`.
        try:
            members: dict[str, Raw] = _decode_members(raw)
            if _remove_disguised(members):
                raw = Raw(msgspec.json.encode(members))
            result_type = members.get(_RESULT_TYPE, _COMPLETE)
            if result_type == _COMPLETE or _decode_text(result_type) != INPUT_REQUIRED:
                return raw
        except msgspec.ValidationError:
            return raw
        try:
            asked = _decode_questions(members.get(_INPUT_REQUESTS, Raw(b"{}")))
        except msgspec.ValidationError:
            raise HoldfastError(codes.BAD_ANSWER, "The server's inputRequests are not valid.") from None
        for key, question in asked.items():
            if fold_key(key).startswith(OWN_KEY_PREFIX):
                raise HoldfastError(
                    codes.BAD_ANSWER, f"Keys of inputRequests may not begin with {OWN_KEY_PREFIX!r}."
                )
            if question.method not in _CAPABILITY_OF:
                raise HoldfastError(
                    codes.BAD_ANSWER, f"There is no method {question.method[:80]!r} in inputRequests."
                )
            if question.method == ELICITATION:
                question.params = Raw(msgspec.json.encode(self._sanitize(question.params)))
        members[_RESULT_TYPE] = Raw(encode(INPUT_REQUIRED))
        return Raw(msgspec.json.encode({**members, _INPUT_REQUESTS: asked}))

    def sanitize_error(self, error: PeerError) -> PeerError:
        """The server's error, for a client. If it asks the user to open pages, the questions are sanitized.

        If one of them may not be shown, the error becomes an internal error without questions.
        """
        if error.rpc_code != URL_ELICITATION_REQUIRED:
            return error
        try:
            if not self._is_allowed("elicitation"):
                raise HoldfastError(
                    codes.NOT_GRANTED, f"This server may not use {ELICITATION} in this session."
                )
            asked = _decode_pages(encode(error.data)).elicitations
            shown: list[Json] = [self._sanitize(Raw(msgspec.json.encode(page))) for page in asked]
        except (HoldfastError, *DECODE_ERRORS):
            return PeerError(_INTERNAL_ERROR, error.message)
        return PeerError(error.rpc_code, error.message, {"elicitations": shown})

    def _list_roots(self, roots: tuple[str, ...]) -> Raw:
        """The answer with these roots, encoded once."""
        if self._encoded_roots is None or self._encoded_roots[0] is not roots:
            answer = {"roots": [{"uri": Path(root).as_uri()} for root in roots]}
            self._encoded_roots = (roots, Raw(msgspec.json.encode(answer)))
        _, encoded = self._encoded_roots
        self.throttle.charge(len(encoded) * _COPY_SECONDS_PER_BYTE)
        return encoded

    async def _list_protected_roots(self, context: SessionContext) -> JsonObject:
        """The session's own roots, and what may not be changed in them. A gateway client is not asked: it could name any folder."""
        roots = context.roots or (context.cwd,)
        read_only = await self._find_read_only(roots)
        return {
            "roots": [{"uri": Path(root).as_uri()} for root in roots],
            "_meta": {READ_ONLY_KEY: [*read_only]},
        }

    async def _elicit(self, door: Door, params: Raw) -> JsonObject:
        return await door.elicit(self._sanitize(params))

    def _sanitize(self, params: Raw) -> JsonObject:
        began = monotonic()
        try:
            return sanitize_elicitation(self.spec, params, is_restricted=self._is_restricted)
        finally:
            self.throttle.charge_since(began)  # a refused question also costs time

    async def _within_question_limit(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask a question. Raise BUSY if the server already has too many open questions."""
        if self._open_questions >= _MAX_OPEN_QUESTIONS:
            question.close()
            raise HoldfastError(
                codes.BUSY,
                f"This server already has {_MAX_OPEN_QUESTIONS} open questions. Ask again after an answer.",
            )
        self._open_questions += 1
        try:
            return await question
        finally:
            self._open_questions -= 1

    @property
    def _is_restricted(self) -> bool:
        """Whether the server may not ask the user to open local addresses, and its questions are never passed on in its own result."""
        return self.spec.confinement is not None or self.spec.always_confined or self._is_sandboxed

    @property
    def _is_sandboxed(self) -> bool:
        return self._scope is not None and self._scope.context.trust_level is Trust.SANDBOXED

    @property
    def _must_protect_files(self) -> bool:
        """Whether the server must be told which files it may not change: the session is sandboxed, but no sandbox confines the server itself."""
        return self.spec.confines_what_it_runs and self._is_sandboxed

    @property
    def _must_list_own_roots(self) -> bool:
        """Whether the session's own roots are listed and the gateway's client is not asked: the client may use one folder, but could name any."""
        relay = self.relay
        return relay is not None and relay.is_limited_to_folder and self._is_allowed("roots")

    def _can_list_roots(self) -> bool:
        return self._scope is not None and self._is_allowed("roots")

    def _can_elicit(self) -> bool:
        return (
            self._door is not None and self._door.capabilities.elicitation and self._is_allowed("elicitation")
        )

    def _can_elicit_by_url(self) -> bool:
        return self._door is not None and self._door.capabilities.elicitation_url

    def _can_sample(self) -> bool:
        return self._door is not None and self._door.capabilities.sampling and self._is_allowed("sampling")

    def _is_allowed(self, what: str) -> bool:
        """Whether the server may ask for `roots`, `elicitation` or `sampling` in this session."""
        if not isinstance(self.spec.transport, Http | Sse):
            # Every question names the server, so in a direct session even a confined server may ask the user.
            is_question = what == "elicitation" and self._scope is not None and not self._is_sandboxed
            return is_question or self.spec.may_request(what)
        # `may_request` allows everything to a server that is not confined, and a remote server is never confined. So a remote
        # server needs an explicit grant for local paths, and in a sandboxed session for every kind of request.
        return (
            self.spec.allowed_requests.allows(what)
            if what == "roots" or self._is_sandboxed
            else self.spec.may_request(what)
        )
