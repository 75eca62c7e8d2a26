"""An open connection to a server, over any transport."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec

from holdfast.connect.back_off import BackOff
from holdfast.connect.scope import Scope
from holdfast.connect.server_messages import OnProgress, ServerMessages
from holdfast.connect.server_requests import without_disguised_questions
from holdfast.connect.stderr import ServerStderr
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.light_event import LightEvent
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.model.server import ServerSpec
from holdfast.sandbox.view import SandboxView
from holdfast.settings import DEFAULT_LINK_SETTINGS
from holdfast.wire.mcp.client import Client, ServerInfo
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.listed_items import clean_items
from holdfast.wire.mcp.tools import CallResult, Tool
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.messages import PeerError, Raw
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.strict_json import DECODE_ERRORS, describe_decode_error, make_decoder

CONTEXT_EXTENSION = "dev.holdfast/session"
_MAX_INPUT_ROUNDS = 10
_MAX_INPUT_REQUESTS = 10
_POLL_SECONDS = 0.1  # how long to wait if the server wants the request again but asks for no input

OnTools: TypeAlias = Callable[[Sequence[Tool]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """Timeouts and limits of a host's connections."""

    limits: Limits = DEFAULT_LIMITS
    connect_seconds: float = DEFAULT_LINK_SETTINGS.connect_seconds
    connect_setting: str = ""
    """The setting to name in a message if a server needs more time to connect."""
    list_seconds: float = DEFAULT_LINK_SETTINGS.list_seconds
    call_seconds: float = DEFAULT_LINK_SETTINGS.call_seconds
    end_seconds: float = 2.0
    """How long a server may take to exit before it is killed."""
    back_off: BackOff = field(default_factory=BackOff)
    """The delays before a server that keeps failing is started again."""
    eras: dict[str, Era] = field(default_factory=dict[str, Era])
    """The era that each server used last. The keys are those of `negotiate`."""


class ForwardOptions(TypedDict, total=False):
    """Options for a request to a server. `capabilities` is only for requests of the session's gateway client."""

    meta: JsonObject | None
    """The `_meta` of the request. The host's own entries have precedence over those of a client."""
    capabilities: JsonObject | None
    """The client's capabilities, if this request declares them."""
    timeout: float | None
    on_progress: OnProgress | None


class Connection:
    """Sends requests to one server.

    A modern server can answer `input_required` to ask for input first. The connection gets the input and sends the request again.
    """

    def __init__(
        self,
        client: Client,
        *,
        ended: LightEvent,
        server_messages: ServerMessages,
        stderr: ServerStderr | None = None,
        on_tools: OnTools | None = None,
    ) -> None:
        """`on_tools` is called with the tools each time they are listed."""
        self._client = client
        self._on_tools = on_tools
        self._server_messages = server_messages
        self.ended = ended
        self.stderr = stderr
        """The server's standard error; None if the host did not start the server."""
        self.view: SandboxView | None = None
        """What the server can see in its sandbox; None if it is not confined."""

    @property
    def server_info(self) -> ServerInfo:
        return self._client.server_info

    async def list_tools(
        self, *, meta: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> list[Tool]:
        """All tools that the server lists, including those that are not approved."""
        if "tools" not in self.server_info.capabilities:
            return []
        tools = await self._client.list_tools(meta=meta, timeout=timeout)
        if self._on_tools is not None:
            await self._on_tools(tools)
        return tools

    async def list_all(
        self, method: str, key: str, *, meta: Mapping[str, Any] | None = None, quota_owner: str = ""
    ) -> list[JsonObject]:
        """All objects that the server lists under `key`, from all pages. `quota_owner`: see `call`."""
        kind = key.removesuffix("s")  # for messages
        pages = [raw async for raw in self._client.list_pages(method, kind, meta=meta, owner=quota_owner)]
        if sum(map(len, pages)) <= LONG_LINE_BYTES:
            return _decode_items(pages, key)
        owner = quota_owner or self._client.throttle.owner
        return await PARSE_THREADS.run(_decode_items, pages, key, owner=owner)

    async def call(
        self,
        tool: str,
        arguments: Raw,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        quota_owner: str = "",
    ) -> CallResult:
        """Call a tool. If the server asks for input first, answer what the session allows.

        If sessions share the server, `quota_owner` is that of the calling session: each owner gets its share of the request slots and
        threads. Otherwise it is empty.
        """
        if on_progress is not None:
            with self._server_messages.listen_for_progress(on_progress) as token:
                meta = {**(meta or {}), "progressToken": token}
                return await self.call(tool, arguments, meta=meta, timeout=timeout, quota_owner=quota_owner)
        params = {"name": tool, "arguments": arguments}
        raw = await self._client.request("tools/call", params, meta=meta, timeout=timeout, owner=quota_owner)
        result = await self._client.decode_result(raw)
        if result.result_type != "input_required":
            return result

        def send(more: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._client.request("tools/call", {**params, **more}, meta=meta, owner=quota_owner)

        async with asyncio.timeout(timeout):  # answering input requests also takes time
            return await self._client.decode_result(await self._resolve_input_requests(raw, send))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        quota_owner: str = "",
    ) -> Raw:
        """Send a request. If the server asks for input, answer and send the request again. `quota_owner`: see `call`."""

        def send(more: Mapping[str, Any]) -> Awaitable[Raw]:
            return self._client.request(
                method, {**(params or {}), **more}, meta=meta, timeout=timeout, owner=quota_owner
            )

        return await self._resolve_input_requests(await send({}), send)

    async def forward(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        quota_owner: str = "",
        **options: Unpack[ForwardOptions],
    ) -> Raw:
        """Send a request of the session's gateway client, and return the result as the server sent it. `quota_owner`: see `call`.

        A modern server asks for input in its result. A modern client gets that result, with sanitized questions, if
        `may_pass_on_questions`. Otherwise each question is checked, and the client is asked through the relay.
        """
        on_progress = options.pop("on_progress", None)
        if on_progress is not None:
            with self._server_messages.listen_for_progress(on_progress) as token:
                options["meta"] = {**(options.get("meta") or {}), "progressToken": token}
                return await self.forward(method, params, quota_owner=quota_owner, **options)
        requests, timeout = self._server_messages.server_requests, options.get("timeout")
        capabilities = options.get("capabilities")
        if capabilities is not None:
            capabilities = requests.allowed_capabilities(capabilities)

        async def send(more: Mapping[str, Any]) -> Raw:
            try:
                return await self._client.request(
                    method,
                    {**params, **more},
                    meta=options.get("meta"),
                    capabilities=capabilities,
                    timeout=timeout,
                    owner=quota_owner,
                )
            except PeerError as error:
                raise requests.sanitize_error(error) from None

        raw = await send({})
        if self.server_info.era is Era.HANDSHAKE:
            return raw
        relay = requests.relay
        if relay is not None and relay.era is Era.MODERN and requests.may_pass_on_questions:
            return requests.sanitize_questions(raw)
        async with asyncio.timeout(timeout):
            raw = await self._resolve_input_requests(raw, send)
            # All questions are answered, so the client must find none in the result.
            return await self._client.run_in_thread_if_long(without_disguised_questions, raw)

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification of the session's gateway client."""
        await self._client.peer.notify(method, params)

    async def decode_forwarded(self, raw: Raw, *, is_call: bool) -> CallResult:
        """Decode a forwarded result for the session's record. A result that is not of a call, or not valid, becomes the structured content."""
        if is_call:
            try:
                return await self._client.decode_result(raw)
            except HoldfastError:
                pass
        return CallResult(structured_content=raw)

    async def _resolve_input_requests(
        self, raw: Raw, send: Callable[[Mapping[str, Any]], Awaitable[Raw]]
    ) -> Raw:
        """If a result asks for input, answer and send the request again, until the result is complete."""
        for _ in range(_MAX_INPUT_ROUNDS):
            try:
                interim = await self._client.run_in_thread_if_long(_decode_interim, raw)
            except msgspec.ValidationError:
                return raw
            if interim.result_type != "input_required":
                return raw
            more: dict[str, Any] = {"requestState": interim.request_state} if interim.request_state else {}
            if len(interim.input_requests) > _MAX_INPUT_REQUESTS:
                raise HoldfastError(
                    codes.BAD_ANSWER,
                    f"The server asked for {len(interim.input_requests)} inputs at once; the maximum is "
                    f"{_MAX_INPUT_REQUESTS}.",
                )
            if interim.input_requests:
                more["inputResponses"] = {
                    key: await self._server_messages.server_requests.answer(request.method, request.params)
                    for key, request in interim.input_requests.items()
                }
            else:
                await asyncio.sleep(_POLL_SECONDS)
            raw = await send(more)
        raise HoldfastError(
            codes.BAD_ANSWER,
            f"{self.server_info.server.name[:80]!r} asked for input {_MAX_INPUT_ROUNDS} times without answering the request.",
        )


class _InputRequest(msgspec.Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InterimResult(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    input_requests: dict[str, _InputRequest] = {}
    request_state: Raw = Raw()


_decode_interim = make_decoder(_InterimResult)
_decode_fields = make_decoder(dict[str, Raw])
_decode_object = make_decoder(dict[str, Json])


def _decode_items(pages: list[Raw], key: str) -> list[JsonObject]:
    objects: list[JsonObject] = []
    for page in pages:
        try:
            items = clean_items(_decode_fields(page).get(key, Raw(b"[]")), key)
        except DECODE_ERRORS as error:
            why = describe_decode_error(error)
            raise HoldfastError(codes.BAD_ANSWER, f"The server sent an invalid list: {why}.") from None
        objects += map(_decode_object, items)
    return objects


Connect: TypeAlias = Callable[[ServerSpec, Scope | None], AbstractAsyncContextManager[Connection]]
"""Opens a connection. The scope is None for a server that sessions share: the connection has no session context."""


def reads_context(server_info: ServerInfo) -> bool:
    """Whether the server declares that it reads the session context in each request."""
    extensions = server_info.capabilities.get("extensions")
    return isinstance(extensions, dict) and CONTEXT_EXTENSION in extensions
