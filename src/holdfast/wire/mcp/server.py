"""An MCP server that answers clients of both eras."""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, META_LIMIT, Limits
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.eras import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    VERSION_KEY,
    Era,
    Implementation,
    OwnInfo,
)
from holdfast.wire.messages import EMPTY_OBJECT, Id, Notification, PeerError, Raw, Request, encode
from holdfast.wire.peer import Peer
from holdfast.wire.strict_json import exceeds_limit, make_decoder

T = TypeVar("T")

_connection_numbers = itertools.count(1)
MAX_PROGRESS_TOKEN = 256  # characters
_COMPLETE = Raw(b'"complete"')
_CACHEABLE_METHODS = frozenset(
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


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a client reported about itself, and its era."""

    era: Era
    version: str
    implementation: Implementation
    capabilities: JsonObject
    meta: JsonObject
    """The `_meta` of `initialize`; empty in the modern era."""


Notify = Callable[[str, Any], Awaitable[None]]


class Ask(Protocol):
    """Sends a request to the client and waits for the result. Only clients of the handshake era answer requests."""

    async def __call__(self, method: str, params: Any, *, timeout: float | None = None) -> Raw: ...


async def cannot_ask(method: str, params: Any, *, timeout: float | None = None) -> Raw:
    """The `ask` of a handshake-era client that accepts no event stream. It raises MISSING_CAPABILITY."""
    raise HoldfastError(
        codes.MISSING_CAPABILITY,
        f"This client cannot receive {method}. It must accept text/event-stream, or use another transport.",
    )


async def cannot_ask_modern(method: str, params: Any, *, timeout: float | None = None) -> Raw:
    """The `ask` of a modern client. It raises MISSING_CAPABILITY."""
    raise HoldfastError(
        codes.MISSING_CAPABILITY,
        f"This client cannot receive {method}: clients of MCP {MODERN_VERSIONS[-1]} receive no requests. Return a result that asks for"
        " input instead.",
    )


class BackChannel(msgspec.Struct, frozen=True):
    """The functions that send messages to one client."""

    notify: Notify
    """Sends a notification about the request that is being answered."""
    ask: Ask = cannot_ask_modern
    """Sends a request, and waits for the result."""
    push: Notify | None = None
    """Sends a notification that belongs to no request. None if there is no way to send one, as to modern clients over HTTP. Do not use
    `push` for modern clients over stdio either: they expect no such notification."""


class HttpCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent an HTTP request, according to its head. A service can add what it knows of the caller in a subclass."""

    caller_id: str = ""
    """Identifies the caller for sessions and quotas. Empty if the service cannot tell callers apart."""


UNKNOWN_CALLER = HttpCaller()


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP request that carried a message. Only `caller` has been verified."""

    headers: Mapping[str, str]
    """By lower-case name. A list header that was sent several times is joined with commas."""
    body: bytes
    caller: HttpCaller = UNKNOWN_CALLER
    shown_headers: Mapping[str, str] = {}
    """The headers that tools may see."""
    session_id: str = ""
    """The `Mcp-Session-Id` of a handshake-era client; empty in the modern era."""


class McpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP request, the client that sent it, and how it arrived."""

    id: Id
    method: str
    params: Raw
    meta: JsonObject
    client: ClientInfo
    back_channel: BackChannel
    connection: str = ""
    """The id of the connection or MCP session that the request belongs to; empty for a modern request over HTTP."""
    http: HttpRequest | None = None
    """None if the request came over stdio or in memory."""

    @property
    def notify(self) -> Notify:
        """Send the client a notification about this request."""
        return self.back_channel.notify

    def decode_params(self, kind: type[T]) -> T:
        """Decode the params into a type; raise BAD_ARGUMENT if they do not match it."""
        try:
            return make_decoder(kind)(self.params)
        except msgspec.ValidationError as error:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"The params of {self.method} are invalid: {error}."
            ) from None


class Service(Protocol):
    """The implementation of an MCP server, which answers all requests except `initialize`, the modern era's `server/discover` and the handshake era's `ping`."""

    @property
    def info(self) -> OwnInfo:
        """Name, version, capabilities and instructions."""
        ...

    async def answer(self, request: McpRequest) -> Any:
        """Return the result: an encodable value or a `Raw`. Raise METHOD_NOT_FOUND for an unknown method."""
        ...

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification. Not called for `initialized`, for cancellations, and for modern clients over HTTP."""
        ...


def server_peer(
    service: Service, *, limits: Limits = DEFAULT_LIMITS, throttle: LoopThrottle | None = None
) -> Peer:
    """Make a peer that answers requests with this service. All connections of one owner should share a throttle."""
    connection = _ServerConnection(service)
    peer = Peer(
        on_request=connection.on_request,
        on_notification=connection.on_notification,
        limits=limits,
        answers_malformed=True,
        throttle=throttle,
    )
    connection.back_channel = BackChannel(peer.notify, peer.request, peer.notify)
    return peer


async def answer_request(
    service: Service,
    request: Request,
    client: ClientInfo | None,
    back_channel: BackChannel,
    *,
    connection: str = "",
    http: HttpRequest | None = None,
) -> Any:
    """Answer one request.

    `client` is what a handshake-era client reported in `initialize`, or None. A modern client reports it in the `_meta` of
    every request, which takes precedence.
    """
    meta = read_meta(request.params)
    if VERSION_KEY in meta:
        client = modern_client(meta)
    elif request.method == "ping":
        return EMPTY_OBJECT
    elif client is None:
        raise no_client_info()
    if client.era is Era.MODERN and request.method == "server/discover":
        result: Any = _discover_result(service.info)
    else:
        mcp_request = McpRequest(
            id=request.id,
            method=request.method,
            params=request.params,
            meta=meta,
            client=client,
            back_channel=back_channel,
            connection=connection,
            http=http,
        )
        result = await service.answer(mcp_request)
    return result if client.era is Era.HANDSHAKE else add_modern_fields(result, request.method, service.info)


def no_client_info() -> HoldfastError:
    """The error for a request from a client that has not reported anything about itself."""
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"Send initialize first, or {VERSION_KEY!r} and {CAPABILITIES_KEY!r} in params._meta of every request.",
    )


def initialize(service: Service, request: Request) -> tuple[ClientInfo, dict[str, Any]]:
    """Answer `initialize`: return the client's info and the result."""
    client = read_client(request)
    return client, initialize_result(client, service.info)


def read_client(request: Request) -> ClientInfo:
    """What a client reports about itself in `initialize`, and the MCP version to use with it."""
    try:
        params = make_decoder(_InitializeParams)(request.params)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"The params of initialize are invalid: {error}.") from None
    version = (
        params.protocol_version if params.protocol_version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    )
    return ClientInfo(
        era=Era.HANDSHAKE,
        version=version,
        implementation=params.client_info,
        capabilities=params.capabilities,
        meta=params.meta,
    )


def initialize_result(client: ClientInfo, info: OwnInfo) -> dict[str, Any]:
    """The result of `initialize`."""
    answer: dict[str, Any] = {
        "protocolVersion": client.version,
        "capabilities": info.capabilities,
        "serverInfo": info.implementation,
    }
    if info.instructions:
        answer["instructions"] = info.instructions
    return answer


class _ServerConnection:
    """A connection to one client."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._client: ClientInfo | None = None
        self._id = f"connection {next(_connection_numbers)}"
        self.back_channel: BackChannel  # set by `server_peer`, which needs this object to create the peer

    async def on_request(self, request: Request) -> Any:
        if request.method == "initialize":
            self._client, answer = initialize(self._service, request)
            return answer
        return await answer_request(
            self._service, request, self._client, self.back_channel, connection=self._id
        )

    def on_notification(self, notification: Notification) -> None:
        if notification.method != "notifications/initialized":
            self._service.on_notification(notification)


class _InitializeParams(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Json] = {}
    client_info: Implementation = Implementation()
    meta: dict[str, Json] = msgspec.field(default_factory=dict[str, Json], name="_meta")


class _ParamsWithMeta(msgspec.Struct):
    meta: dict[str, Json] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _ParamsWithRawMeta(msgspec.Struct):
    meta: Raw = msgspec.field(default=EMPTY_OBJECT, name="_meta")


_decode_meta = make_decoder(_ParamsWithMeta)
_decode_raw_meta = make_decoder(_ParamsWithRawMeta)


def read_meta(params: Raw) -> JsonObject:
    """The `_meta` in the params; empty if there is none. Raise if it is too large, or if its `progressToken` is not valid."""
    try:
        # A value takes at least one byte, so shorter params are within the limit.
        if len(params) > META_LIMIT.values and exceeds_limit(_decode_raw_meta(params).meta, META_LIMIT):
            raise HoldfastError(
                codes.TOO_LARGE,
                f"params._meta has more than {META_LIMIT.bytes} bytes or {META_LIMIT.values} values.",
            )
        meta = _decode_meta(params).meta
    except msgspec.ValidationError:
        raise HoldfastError(codes.BAD_ARGUMENT, "params and params._meta must be objects.") from None
    if meta is UNSET:
        return {}
    if (token := meta.get("progressToken")) is not None:
        _check_progress_token(token)
    return meta


def _check_progress_token(token: Json) -> None:
    """Raise unless this is a number or a short string: it is sent back with every progress notification."""
    is_valid = isinstance(token, int | float) and not isinstance(token, bool)
    if not (is_valid or (isinstance(token, str) and len(token) <= MAX_PROGRESS_TOKEN)):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"params._meta.progressToken must be a number, or a string of at most {MAX_PROGRESS_TOKEN} characters.",
        )


def modern_client(meta: JsonObject) -> ClientInfo:
    """What a modern client reports about itself in `_meta`. Raise if a part is missing, or if the version is not supported."""
    version, capabilities = meta[VERSION_KEY], meta.get(CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"params._meta needs {VERSION_KEY!r} (a string) and {CAPABILITIES_KEY!r} (an object).",
        )
    if version not in MODERN_VERSIONS:
        raise PeerError(
            codes.UNSUPPORTED_VERSION.rpc_code,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": version[:80]},
        )
    try:
        implementation = msgspec.convert(meta.get(CLIENT_KEY) or {}, Implementation)
    except msgspec.ValidationError:
        implementation = Implementation()
    return ClientInfo(
        era=Era.MODERN, version=version, implementation=implementation, capabilities=capabilities, meta={}
    )


def _discover_result(info: OwnInfo) -> dict[str, Any]:
    answer: dict[str, Any] = {"supportedVersions": MODERN_VERSIONS, "capabilities": info.capabilities}
    if info.instructions:
        answer["instructions"] = info.instructions
    return answer


@lru_cache(maxsize=16)
def _server_meta(implementation: Implementation) -> dict[str, Raw]:
    """The `_meta` that every modern result has."""
    return {SERVER_KEY: Raw(encode(implementation))}


def add_modern_fields(result: Any, method: str, info: OwnInfo) -> Any:
    """Add the fields that a modern result must have: its type, the server's info and, for some methods, how long it may be cached."""
    members: dict[str, Any] = {**result} if type(result) is dict else _decode_members(encode(result))
    members.setdefault("resultType", _COMPLETE)
    own_meta = _server_meta(info.implementation)
    meta = members.get("_meta")
    members["_meta"] = Raw(encode(own_meta | _decode_members(encode(meta)))) if meta else own_meta
    if method in _CACHEABLE_METHODS:
        members.setdefault("ttlMs", Raw(b"0"))
        members.setdefault("cacheScope", Raw(b'"private"'))
    return members
