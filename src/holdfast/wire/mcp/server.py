"""Answer MCP clients of both eras on one stream."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT, Limits
from holdfast.wire.frame import EMPTY, Id, Notification, Raw, Request, encode
from holdfast.wire.mcp.eras import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    VERSION_KEY,
    Era,
    Implementation,
    Introduction,
)
from holdfast.wire.peer import Peer, PeerError

T = TypeVar("T")

_COMPLETE = Raw(b'"complete"')
_CACHEABLE = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, by its own account, and what it said when it first spoke."""

    era: Era
    version: str
    who: Implementation
    capabilities: JsonObject
    meta: JsonObject
    """The `_meta` of `initialize`; empty in the modern era."""


Notify = Callable[[str, Any], Awaitable[None]]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP request that brought a message. Its headers and body are as they came; nothing in it is believed yet."""

    headers: Mapping[str, str]
    """By lower-case name; what may stand only once does."""
    body: bytes
    session_id: str = ""
    """The `Mcp-Session-Id` of a client that shook hands; empty in the modern era."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with all that came along. Nothing in it changes while it is answered."""

    id: Id
    method: str
    params: Raw
    meta: JsonObject
    caller: Caller
    notify: Notify
    exchange: Exchange | None = None
    """None on a stream of its own, such as stdio."""

    def read(self, kind: type[T]) -> T:
        """The params as a type; what does not fit is the caller's mistake, and named so."""
        try:
            return msgspec.json.decode(self.params, type=kind)
        except msgspec.ValidationError as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"The params of {self.method} cannot be read: {error}."
            ) from None


class Service(Protocol):
    """What stands behind an MCP server: it answers what the protocol itself does not."""

    @property
    def introduction(self) -> Introduction:
        """Name, version, capabilities and instructions."""
        ...

    async def answer(self, ask: Ask) -> Any:
        """The result, as anything encodable or a `Raw`; a method it does not know is METHOD_NOT_FOUND."""
        ...

    def hear(self, notification: Notification) -> None:
        """A notification, other than those the protocol takes care of."""
        ...


def server_peer(service: Service, *, limits: Limits = DEFAULT) -> Peer:
    """A peer that answers for the service."""
    stream = _Stream(service)
    peer = Peer(handle=stream.handle, notice=stream.notice, limits=limits, answers_malformed=True)
    stream.notify = peer.notify
    return peer


async def answer_one(
    service: Service,
    request: Request,
    caller: Caller | None,
    notify: Notify,
    exchange: Exchange | None = None,
) -> Any:
    """Answer one request: of a client that shook hands (`caller`), or one that stands alone by its `_meta`."""
    meta = read_meta(request.params)
    if VERSION_KEY in meta:
        caller = _modern_caller(meta)
    elif request.method == "ping":
        return EMPTY
    elif caller is None:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"Send initialize first, or {VERSION_KEY!r} and {CAPABILITIES_KEY!r} in params._meta of every request.",
        )
    if caller.era is Era.MODERN and request.method == "server/discover":
        result: Any = _discovery(service.introduction)
    else:
        ask = Ask(
            id=request.id,
            method=request.method,
            params=request.params,
            meta=meta,
            caller=caller,
            notify=notify,
            exchange=exchange,
        )
        result = await service.answer(ask)
    return result if caller.era is Era.HANDSHAKE else _stamped(result, request.method, service.introduction)


def shake_hands(service: Service, request: Request) -> tuple[Caller, dict[str, Any]]:
    """Answer `initialize`: who called, and what to tell it."""
    try:
        hello = msgspec.json.decode(request.params, type=_Initialize)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"initialize cannot be read: {error}.") from None
    version = (
        hello.protocol_version if hello.protocol_version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    )
    caller = Caller(
        era=Era.HANDSHAKE,
        version=version,
        who=hello.client_info,
        capabilities=hello.capabilities,
        meta=hello.meta,
    )
    me = service.introduction
    answer: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": me.capabilities,
        "serverInfo": me.who,
    }
    if me.instructions:
        answer["instructions"] = me.instructions
    return caller, answer


class _Stream:
    """One client on one stream."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._caller: Caller | None = None
        self.notify: Notify

    async def handle(self, request: Request) -> Any:
        if request.method == "initialize":
            self._caller, answer = shake_hands(self._service, request)
            return answer
        return await answer_one(self._service, request, self._caller, self.notify)

    def notice(self, notification: Notification) -> None:
        if notification.method != "notifications/initialized":
            self._service.hear(notification)


class _Initialize(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Json] = {}
    client_info: Implementation = Implementation()
    meta: dict[str, Json] = msgspec.field(default_factory=dict[str, Json], name="_meta")


class _WithMeta(msgspec.Struct):
    meta: dict[str, Json] | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_meta = msgspec.json.Decoder(_WithMeta).decode


def read_meta(params: Raw) -> JsonObject:
    """The `_meta` of some params; empty when there is none."""
    try:
        meta = _decode_meta(params).meta
    except msgspec.ValidationError:
        raise HoldfastError(
            codes.BAD_ARGUMENT, "params must be an object, and so must params._meta."
        ) from None
    return {} if meta is UNSET else meta


def _modern_caller(meta: JsonObject) -> Caller:
    version, capabilities = meta[VERSION_KEY], meta.get(CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"params._meta needs {VERSION_KEY!r} (a string) and {CAPABILITIES_KEY!r} (an object).",
        )
    if version not in MODERN_VERSIONS:
        raise PeerError(
            codes.UNSUPPORTED_VERSION.rpc,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": version[:80]},
        )
    try:
        who = msgspec.convert(meta.get(CLIENT_KEY) or {}, Implementation)
    except msgspec.ValidationError:
        who = Implementation()
    return Caller(era=Era.MODERN, version=version, who=who, capabilities=capabilities, meta={})


def _discovery(me: Introduction) -> dict[str, Any]:
    answer: dict[str, Any] = {"supportedVersions": MODERN_VERSIONS, "capabilities": me.capabilities}
    if me.instructions:
        answer["instructions"] = me.instructions
    return answer


def _stamped(result: Any, method: str, me: Introduction) -> Any:
    """A result as the modern era wants it: its type, who answers, and how long a list keeps."""
    members = _decode_members(encode(result))
    members.setdefault("resultType", _COMPLETE)
    meta = _decode_members(members["_meta"]) if "_meta" in members else {}
    meta.setdefault(SERVER_KEY, Raw(encode(me.who)))
    members["_meta"] = Raw(encode(meta))
    if method in _CACHEABLE:
        members.setdefault("ttlMs", Raw(b"0"))
        members.setdefault("cacheScope", Raw(b'"private"'))
    return members
