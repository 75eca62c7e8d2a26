"""The spans of one session: the session itself, its turns, tool calls and sub-agents."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Origin, StopReason
from holdfast.model.json import JsonObject
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio
from holdfast.tracing import SESSION_KEY, Span, Tracer


class SessionSpans:
    """Begins the spans of a session, with the attributes of OpenTelemetry's conventions for agents (GenAI) and for MCP.

    A span has names, ids, hosts of servers, counts and codes. It never has prompts, answers, arguments, results or the texts of errors.
    """

    def __init__(self, tracer: Tracer, context: SessionContext, parent: "SessionSpans | None" = None) -> None:
        self._tracer = tracer
        self._ids = {SESSION_KEY: context.session_id}
        self._calls: dict[str, Span] = {}
        attributes = {
            **self._ids,
            "holdfast.trust_level": context.trust_level.value,
            **({"holdfast.workspace.id": context.workspace_id} if context.workspace_id else {}),
        }
        self._span = tracer.start("session", attributes, parent=None if parent is None else parent._span)

    def end(self) -> None:
        self._span.end()

    @contextmanager
    def turn(self, agent: str) -> Iterator[Span]:
        """The span of a turn of the session's agent. It is the current span in the block."""
        span = self._start_agent(agent, {}, self._span)
        try:
            with span.active():
                yield span
        finally:
            span.end()

    @contextmanager
    def sub_agent(self, origin: Origin, agent: str, parent: Span | None) -> Iterator[Span]:
        """The span of a sub-agent, inside that of the call it works for. It is the current span in the block."""
        parent = parent or self._span
        with parent.active():
            span = self._start_agent(agent, {"gen_ai.agent.id": origin.agent}, parent)
        try:
            with span.active():
                yield span
        except HoldfastError as error:
            span.fail(error.code.name)
            raise
        except BaseException as error:
            span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    def _start_agent(self, agent: str, more: dict[str, str], parent: Span) -> Span:
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            **self._ids,
            **more,
        }
        return self._tracer.start(f"invoke_agent {agent}", attributes, parent=parent)

    def start_call(self, tool_call: ToolCall, tool: CatalogTool) -> Span:
        """Begin the span of a call. `end_call` ends it."""
        method, name = tool_call.method or "tools/call", tool.definition.name
        attributes = {
            "mcp.method.name": method,
            **self._ids,
            "holdfast.server.name": tool.server.name,
            **_describe_transport(tool.server),
        }
        if not tool_call.method:
            attributes["gen_ai.operation.name"] = "execute_tool"
            attributes["gen_ai.tool.name"] = name
            attributes["gen_ai.tool.call.id"] = tool_call.call_id
        if tool_call.origin.agent:
            attributes["gen_ai.agent.id"] = tool_call.origin.agent
        span = self._calls[tool_call.call_id] = self._tracer.start(
            method if tool_call.method else f"{method} {name}",
            attributes,
            kind="client",
            parent=self._span,
            remote=tool_call.meta,
        )
        return span

    def end_call(self, tool_call: ToolCall, result: ToolResult) -> None:
        """End the span of a call, with its outcome."""
        span = self._calls.pop(tool_call.call_id)
        span.set({"holdfast.outcome": result.outcome.value})
        if not result.ok:
            code = codes.find(result.code)
            # A code that the tool defines itself may be any string.
            span.fail(code.name if code is not None else "tool_error")
        span.end()

    def find_call(self, call_id: str) -> Span | None:
        return self._calls.get(call_id)


def add_turn_attributes(span: Span, reason: StopReason, usage: JsonObject, failure: str = "") -> None:
    """Add to the span of a turn how it ended, and what it used."""
    span.set({"holdfast.stop_reason": reason.value, **_describe_usage(usage)})
    if failure:
        span.fail(failure)


def _describe_usage(usage: JsonObject) -> dict[str, int]:
    return {
        f"gen_ai.usage.{name}": value
        for name in ("input_tokens", "output_tokens")
        if isinstance(value := usage.get(name), int)
    }


def _describe_transport(server: ServerSpec) -> dict[str, str]:
    match server.transport:
        case Stdio():
            return {"network.transport": "pipe"}
        case InProcess():
            return {"network.transport": "inproc"}
        case Http(url=url) | Sse(url=url):
            return {"network.transport": "tcp", "server.address": urlsplit(url).hostname or ""}
