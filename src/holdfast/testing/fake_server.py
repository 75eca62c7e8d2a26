"""A server in the test's process. It gives the answers that the test defines, and keeps the calls that it got."""

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import McpRequest, Service
from holdfast.wire.mcp.tools import CallParams
from holdfast.wire.messages import Notification, Raw
from holdfast.wire.strict_json import decode_json

FakeAnswer: TypeAlias = Any | Callable[[JsonObject], Awaitable[Any] | Any]
"""A value, an exception, or a function, sync or async, that takes the call's arguments and returns a value or raises."""
_ANY_OBJECT: JsonObject = {"type": "object"}


class FakeError(Exception):
    """An answer with which a fake tool reports an error with this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCall:
    """A call that a fake server got."""

    tool: str
    arguments: JsonObject
    session: SessionContext
    meta: JsonObject


@dataclass(slots=True, kw_only=True)
class _FakeTool:
    answer: FakeAnswer
    schema: JsonObject
    description: str
    read_only: bool


class FakeServer:
    """A server for tests: `FakeServer({"search": {"hits": 3}})`. Pass it to `host_of` or to `Host(servers=…)`.

    An answer that is a string becomes a text block. Any other value becomes JSON, as text and as structured content, where a value
    that is not an object is wrapped: `{"result": value}`.
    """

    def __init__(self, tools: Mapping[str, FakeAnswer] | None = None, *, name: str = "fake") -> None:
        self.name = name
        self.calls: list[FakeCall] = []
        """The calls, in order."""
        self._tools: dict[str, _FakeTool] = {}
        for tool, answer in (tools or {}).items():
            self.add(tool, answer)

    def add(
        self,
        tool: str,
        answer: FakeAnswer,
        *,
        schema: JsonObject | None = None,
        description: str = "A fake tool.",
        read_only: bool = False,
    ) -> None:
        """Add a tool, or replace it. `schema` is the JSON Schema of its arguments; by default, the tool takes any arguments."""
        self._tools[tool] = _FakeTool(
            answer=answer, schema=schema or _ANY_OBJECT, description=description, read_only=read_only
        )

    def calls_to(self, tool: str) -> list[JsonObject]:
        """Return the arguments of the calls of one tool, in order."""
        return [call.arguments for call in self.calls if call.tool == tool]

    @asynccontextmanager
    async def open_service(self, context: SessionContext) -> AsyncIterator[Service]:
        """Open the server for one session. Called by the host."""
        yield _FakeService(self, context)

    def list_tools(self) -> list[JsonObject]:
        return [
            {
                "name": name,
                "description": tool.description,
                "inputSchema": tool.schema,
                "annotations": {"readOnlyHint": tool.read_only},
            }
            for name, tool in self._tools.items()
        ]

    async def answer(self, call: FakeCall) -> JsonObject:
        """Return the result of a call, in the format of MCP."""
        tool = self._tools.get(call.tool)
        if tool is None:
            raise HoldfastError(codes.UNKNOWN_TOOL, f"There is no tool {call.tool[:80]!r}.")
        self.calls.append(call)
        try:
            value = tool.answer
            if callable(value) and not isinstance(value, type):
                value = value(call.arguments)
                if inspect.isawaitable(value):
                    value = await value
            if isinstance(value, Exception):
                raise value
        except FakeError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        return _result(value)


class _FakeService:
    """A fake server as one session sees it."""

    def __init__(self, fake: FakeServer, session: SessionContext) -> None:
        self._fake = fake
        self._session = session
        self.info = OwnInfo(implementation=Implementation(fake.name, "0"), capabilities={"tools": {}})

    async def answer(self, request: McpRequest) -> Any:
        match request.method:
            case "tools/list":
                return {"tools": self._fake.list_tools()}
            case "tools/call":
                params = request.decode_params(CallParams)
                arguments = decode_json(params.arguments)
                call = FakeCall(
                    tool=params.name,
                    arguments=arguments if isinstance(arguments, dict) else {},
                    session=self._session,
                    meta=request.meta,
                )
                return Raw(msgspec.json.encode(await self._fake.answer(call)))
            case method:
                raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")

    def on_notification(self, notification: Notification) -> None:
        """Ignore the notification."""


def _result(value: object) -> JsonObject:
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    text = json.dumps(value, ensure_ascii=False)
    data = cast("JsonObject", value if isinstance(value, dict) else {"result": value})
    return {"content": [{"type": "text", "text": text}], "structuredContent": data}
