"""A client of a box in the same process: real messages, no transport. For tests of tools."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, cast

import msgspec

from holdfast.model import codes
from holdfast.model.async_block import async_block
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.meta_keys import ENVELOPE_KEY
from holdfast.model.slug import slugify
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.workspace import Workspace
from holdfast.toolkit.authentication import AnonymousAuthenticator, Authenticator, EnvironmentAuthenticator
from holdfast.toolkit.check_options import check_parameter_count
from holdfast.toolkit.workspace import WorkspaceLookup
from holdfast.wire.call_arguments import Arguments, encode_arguments
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.client import Client, negotiate
from holdfast.wire.mcp.client_answers import elicitation_result, sampling_result
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.messages import Notification, PeerError, Raw, Request
from holdfast.wire.peer import Peer
from holdfast.wire.strict_json import decode_json

if TYPE_CHECKING:
    from holdfast.toolkit.toolbox import Toolbox

_MAX_ROUNDS = 20  # how often one request may ask for input
_LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"

Answer: TypeAlias = Callable[[JsonObject], "Awaitable[Any] | Any"]
"""Answers a question of a tool, given its params. May be sync or async."""


class ClientOptions(TypedDict, total=False):
    """The options of `box.client`: who calls, and how the client answers."""

    trust: Trust | Literal["direct", "sandboxed"]
    """The trust of the caller's session.

    The caller is anonymous if none of `trust`, `user_id`, `workspace` and `session_id` is given. Otherwise `direct` is the
    default.
    """
    user_id: str
    workspace: str | Path | Workspace
    """The session's workspace: a folder (a `Path`, or text with a slash), a `Workspace`, or the slug of one that the box finds."""
    session_id: str
    era: Literal["modern", "handshake"]
    """The era of MCP that the client speaks. The modern one is the default."""
    elicit: Answer
    """Answers `call.ask`: the fields as a dictionary, a dataclass or a model; the value, if the tool asks for one value.

    None declines, and True agrees to open a page. The answer may also be the whole MCP result: `{"action": "cancel"}`.
    """
    sample: Answer
    """Answers `call.sample`: the model's text, or the whole result."""
    roots: Sequence[str | Path]
    """The folders that `call.roots` lists."""
    allow_eval: bool
    """Whether the tools that evaluate code are offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """The result of a tool, as the client got it."""

    members: JsonObject
    """The whole result of `tools/call`."""

    @property
    def ok(self) -> bool:
        """Whether the tool reported no error."""
        return not self.members.get("isError")

    @property
    def content(self) -> list[JsonObject]:
        """The content blocks."""
        blocks = self.members.get("content")
        return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def data(self) -> Any:
        """The structured content, or None."""
        return self.members.get("structuredContent")

    @property
    def envelope(self) -> JsonObject:
        """The envelope (`ok`, `code`, `elapsed_ms`, …), from the content or from `_meta`."""
        meta = self.members.get("_meta")
        inner = meta.get(ENVELOPE_KEY) if isinstance(meta, dict) else None
        found = inner if isinstance(inner, dict) else self.data
        return cast("JsonObject", found) if isinstance(found, dict) else {}

    @property
    def code(self) -> str:
        """The code of the error; empty if there is none."""
        return "" if self.ok else str(self.envelope.get("code", ""))

    def raise_for_error(self) -> Self:
        """The result itself if the tool succeeded; else raise an error with its code and message."""
        if self.ok:
            return self
        raise HoldfastError(self.code or codes.TOOL_FAILED, str(self.envelope.get("error") or self.text))


class BoxClient:
    """A connected client for tests. It records all notifications of the server."""

    def __init__(self, answers: Mapping[str, Answer], roots: Sequence[str]) -> None:
        self.notifications: list[tuple[str, JsonObject]] = []
        """The method and the params of each notification, in order."""
        self.session: SessionContext | None = None
        """The session that the tools see; None if the caller is anonymous."""
        self._answers = answers
        self._roots = roots
        self._client: Client
        self.peer = Peer(on_request=self._on_request, on_notification=self._on_notification)

    def attach(self, client: Client) -> None:
        """Use this negotiated client."""
        self._client = client

    @property
    def era(self) -> str:
        return self._client.server_info.era.value

    @property
    def progress(self) -> list[JsonObject]:
        """The progress that tools have reported."""
        return [params for method, params in self.notifications if method == "notifications/progress"]

    @property
    def logs(self) -> list[JsonObject]:
        """The log messages that tools have sent."""
        return [params for method, params in self.notifications if method == "notifications/message"]

    async def call(self, tool: str, arguments: Arguments | None = None) -> ClientResult:
        """Call a tool, and answer the questions that it asks."""
        meta = {"progressToken": tool, _LOG_LEVEL_KEY: "debug"}
        params = {"name": tool, "arguments": msgspec.Raw(encode_arguments(arguments))}
        return ClientResult(members=await self.request("tools/call", params, meta=meta))

    async def list_tools(self) -> list[JsonObject]:
        """The tools, as clients see them."""
        return await self._list("tools")

    async def list_resources(self) -> list[JsonObject]:
        """The resources, without templates."""
        return await self._list("resources")

    async def list_resource_templates(self) -> list[JsonObject]:
        """The templates of resources, such as `shop://orders/{number}`."""
        return await self._list("resources/templates", "resourceTemplates")

    async def list_prompts(self) -> list[JsonObject]:
        return await self._list("prompts")

    async def read_resource(self, uri: str) -> list[JsonObject]:
        """The contents of a resource."""
        return _objects((await self.request("resources/read", {"uri": uri})).get("contents"))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[JsonObject]:
        """The messages of a prompt."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return _objects((await self.request("prompts/get", params)).get("messages"))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> JsonObject:
        """Send any request, and return its result. Raises `HoldfastError` if the server answers with an error.

        If a modern server asks for input first, answer it and send the request again.
        """
        more: dict[str, Any] = {}
        for _ in range(_MAX_ROUNDS):
            try:
                raw = await self._client.request(method, {**(params or {}), **more}, meta=meta)
            except PeerError as error:
                raise HoldfastError(
                    codes.PEER_ERROR, f"{method}: {error.message} ({error.rpc_code})"
                ) from None
            result = _decode(raw)
            if result.get("resultType") != "input_required":
                return result
            asked = result.get("inputRequests")
            answers = {
                key: await self._answer(str(question["method"]), _object(question.get("params")))
                for key, question in (asked.items() if isinstance(asked, dict) else ())
                if isinstance(question, dict)
            }
            more = {"inputResponses": answers, "requestState": result.get("requestState")}
        raise HoldfastError(codes.BAD_ANSWER, f"{method} asked for input {_MAX_ROUNDS} times.")

    async def _list(self, kind: str, member: str = "") -> list[JsonObject]:
        return _objects((await self.request(f"{kind}/list")).get(member or kind))

    async def _on_request(self, request: Request) -> Any:
        return await self._answer(request.method, _decode(request.params))

    def _on_notification(self, notification: Notification) -> None:
        self.notifications.append((notification.method, _decode(notification.params)))

    async def _answer(self, method: str, params: JsonObject) -> JsonObject:
        if method == "roots/list":
            return {"roots": [{"uri": uri} for uri in self._roots]}
        function = self._answers.get(method)
        if function is None:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"This client has no answer to {method}.")
        answer: object = function(params)
        if inspect.isawaitable(answer):
            answer = await answer
        return (
            elicitation_result(answer, params) if method == "elicitation/create" else sampling_result(answer)
        )


@async_block("async with box.client(…) as client:")
async def connect(box: "Toolbox", options: ClientOptions) -> AsyncIterator[BoxClient]:
    """Serve the box to one client in memory. The lifespan runs for the length of the block."""
    answers: dict[str, Answer] = {}
    capabilities: JsonObject = {}
    for name, function in (("elicit", options.get("elicit")), ("sample", options.get("sample"))):
        if function is not None:
            check_parameter_count(
                function, 1, f"`{name}` must take one parameter, the question", codes.BAD_ARGUMENT
            )
    if "elicit" in options:
        answers["elicitation/create"] = options["elicit"]
        capabilities["elicitation"] = {"form": {}, "url": {}}
    if "sample" in options:
        answers["sampling/createMessage"] = options["sample"]
        capabilities["sampling"] = {}
    if "roots" in options:
        capabilities["roots"] = {}
    client = BoxClient(answers, _uris(options.get("roots", ())))
    authenticator, client.session, workspaces = _caller(box, options)
    server = box.server(authenticator, allow_eval=options.get("allow_eval", False), workspaces=workspaces)
    info = OwnInfo(implementation=Implementation("holdfast-test", "0"), capabilities=capabilities)
    era = _era(options.get("era", "modern"))
    try:
        await server.start()
        async with connect_memory(client.peer, server_peer(server)):
            client.attach(await negotiate(client.peer, info, era=era, only_this_era=True))
            if era is Era.HANDSHAKE:
                await client.request("logging/setLevel", {"level": "debug"})
            yield client
    finally:
        if client.session is not None:
            server.on_session_end(client.session.session_id)
        await server.close()


def _era(name: str) -> Era:
    try:
        return Era(name)
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f'`era` must be "modern" or "handshake", not {name!r}.'
        ) from None


def _caller(
    box: "Toolbox", options: ClientOptions
) -> tuple[Authenticator, SessionContext | None, WorkspaceLookup | None]:
    """The authenticator, the caller's session (None if anonymous), and what finds its workspace (None: the box's own look-up)."""
    if not any(key in options for key in ("trust", "user_id", "workspace", "session_id")):
        return AnonymousAuthenticator(box.aliases), None, None
    slug, lookup = _workspace(options.get("workspace", ""))
    session = SessionContext(
        session_id=cast("Any", options.get("session_id") or new_session_id()),
        trust_level=parse_trust(options.get("trust", Trust.DIRECT)),
        workspace_id=slug,
        user_id=options.get("user_id"),
    )
    return EnvironmentAuthenticator(session), session, lookup


def _workspace(given: str | Path | Workspace) -> tuple[str, WorkspaceLookup | None]:
    """The slug of the workspace, and what finds it. None if only the slug is given: then the box's own look-up finds it."""
    if isinstance(given, str) and "/" in given:  # a folder, not a slug
        given = Path(given)
    if isinstance(given, Path):
        given = Workspace(slug=slugify(given.name), name=given.name, path=str(given.resolve()))
    return (given, None) if isinstance(given, str) else (given.slug, _OneWorkspace(given))


@dataclass(frozen=True, slots=True)
class _OneWorkspace:
    """Finds only the test's workspace."""

    workspace: Workspace = field()

    def get(self, slug: str) -> Workspace:
        if slug != self.workspace.slug:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug[:80]!r}.")
        return self.workspace

    def find(self, address: str) -> Workspace | None:
        own = self.workspace
        return own if address in (own.slug, own.name, own.path) else None


def _uris(folders: Sequence[str | Path]) -> list[str]:
    return [Path(folder).absolute().as_uri() for folder in folders]


def _decode(raw: Raw) -> JsonObject:
    return _object(decode_json(raw) if raw else {})


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[JsonObject]:
    return msgspec.convert(value, list[dict[str, Any]]) if isinstance(value, list) else []
