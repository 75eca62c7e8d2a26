"""Turn a call into an envelope: look up the tool, parse, guard, run, wrap, observe. Failures become envelopes too."""

import asyncio
import hashlib
import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.similar_names import suggest_tool
from holdfast.model.visible_text import to_line
from holdfast.model.workspace import Workspace
from holdfast.toolkit import envelope, meta_envelope
from holdfast.toolkit.call import Call, bind_call
from holdfast.toolkit.envelope import ResultMembers
from holdfast.toolkit.errors import CodeRegistry, ToolError
from holdfast.toolkit.eval_keywords import check_keywords
from holdfast.toolkit.failures import check_result_size, to_failure, unexpected_failure
from holdfast.toolkit.guards import check_guards, needs_session
from holdfast.toolkit.observers import Observation, Observer, notify_observers
from holdfast.toolkit.operation import Operation
from holdfast.toolkit.outcome import CallStats, Envelope, Failed, Ok
from holdfast.toolkit.return_type import EnvelopeKind
from holdfast.toolkit.server_state import ServerState
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.threads import run_in_thread
from holdfast.toolkit.tool import Tool
from holdfast.toolkit.workspace import WorkspaceLookup, resolve_workspace
from holdfast.wire.messages import EMPTY_OBJECT, Raw, encode

log = logging.getLogger(__name__)

T = TypeVar("T")

_NULL = Raw(b"null")
_SUCCESS_ENCODERS = {"content": envelope.encode_success, "meta": meta_envelope.encode_success}
_FAILURE_ENCODERS = {"content": envelope.encode_failure, "meta": meta_envelope.encode_failure}


class DispatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that apply to every call; times are in seconds."""

    workspaces: WorkspaceLookup
    allow_eval: bool = False
    deadline: float = 120.0
    slow_after: float = 1.0
    envelope: EnvelopeKind = "content"


class DispatchResult(msgspec.Struct, frozen=True):
    """The outcome of a call, and the members of the `tools/call` result that reports it."""

    envelope: Envelope
    members: ResultMembers

    @property
    def result(self) -> Raw:
        """The whole result as JSON."""
        return Raw(encode(self.members))


class Dispatcher(msgspec.Struct, frozen=True):
    """Finds the tool of a call, runs its handler in the caller's context, and turns every outcome into an envelope."""

    tools: Mapping[str, Tool]
    codes: CodeRegistry
    options: DispatchOptions
    observers: Sequence[Observer] = ()
    server_state: ServerState = msgspec.field(default_factory=ServerState)

    async def dispatch(self, call: Call, arguments: Raw = EMPTY_OBJECT) -> DispatchResult:
        """Run a call. Raises only when the calling task is cancelled."""
        started_at, start = time.time(), time.perf_counter()
        if call.session is not None:
            call.result_meta.session_id = call.session.session_id
        tool = self.tools.get(call.tool)
        try:
            if tool is None:
                suggestion = suggest_tool(call.tool, self.tools)
                raise HoldfastError(
                    codes.UNKNOWN_TOOL, f"There is no tool {call.tool[:80]!r} here.{suggestion}"
                )
            with bind_call(call):
                returned = await self._parse_and_run(tool, call, arguments)
            stats = _stats(call, start)
            encode_success = _SUCCESS_ENCODERS[tool.envelope]
            data, members = encode_success(tool.return_type, returned, stats)
            check_result_size(call.tool, sum(map(len, members.values())))
            outcome: DispatchResult | Failed = DispatchResult(Ok(data=data, stats=stats), members)
        except BaseException as error:
            outcome = msgspec.structs.replace(to_failure(error, call.tool, tool), stats=_stats(call, start))
        # Outside of the `except` block: if the details cannot be encoded, that error must not be chained to the handler's
        # exception in the log.
        result = self._encode_failure(tool, call, outcome) if isinstance(outcome, Failed) else outcome
        self._observe(tool, call, arguments, result.envelope, started_at)
        return result

    async def run_feature(
        self,
        tool: Tool,
        call: Call,
        sent: bytes | Raw,
        parse: Callable[[], dict[str, Any]],
        convert: Callable[[object], T],
    ) -> T | Failed:
        """Run the handler of a resource, a prompt or a completion, with the guards, context and limits of a tool.

        `sent` is what the caller sent, for observers. Returns what `convert` makes of the handler's result, or the failure.
        Raises only when the calling task is cancelled.
        """
        started_at, start = time.time(), time.perf_counter()
        if call.session is not None:
            call.result_meta.session_id = call.session.session_id
        outcome: T | Failed
        try:
            with bind_call(call):
                outcome = convert(await self._prepare_and_run(tool, call, parse()))
        except BaseException as error:
            outcome = to_failure(error, call.tool, tool)
        stats = _stats(call, start)
        envelope = (
            msgspec.structs.replace(outcome, stats=stats) if isinstance(outcome, Failed) else Ok(stats=stats)
        )
        self._observe(tool, call, sent, envelope, started_at)
        return outcome

    async def check_access(self, tool: Tool, call: Call, address: str = "") -> None:
        """Raise unless the guards of a resource or prompt admit this caller, and the caller may use the workspace.

        `address` is the slug, the name or a path of the workspace; empty for the caller's own.
        """
        guards = tool.definition.guards
        with bind_call(call):
            prepared = await self._with_state(tool, call)
            # Without guards, a caller who has not chosen a workspace can still get completions for the `workspace` argument.
            if tool.signature.workspace and (guards or address):
                workspace = self._resolve_workspace(tool, prepared, address)
                prepared = msgspec.structs.replace(prepared, workspace=workspace)
            with bind_call(prepared):
                await check_guards(guards, prepared)

    async def _parse_and_run(self, tool: Tool, call: Call, arguments: Raw) -> object:
        raw = EMPTY_OBJECT if arguments == _NULL else arguments
        values = tool.signature.arguments.parse(raw)
        if tool.operation is Operation.EVAL:
            check_keywords(tool.name, msgspec.json.decode(raw))
        if tool.definition.requires_eval_flag and not self.options.allow_eval:
            raise ToolError(
                codes.EVAL_DISABLED,
                f"{tool.name} runs only if the server allows it (`--allow-eval`, or `allow_eval=True` in Python).",
            )
        return await self._prepare_and_run(tool, call, values)

    async def _prepare_and_run(self, tool: Tool, call: Call, values: dict[str, Any]) -> object:
        """Find the state and the workspace of the call, check the guards, and run the handler."""
        prepared = call
        if tool.definition.lifespan is not None:
            prepared = await self._with_state(tool, call)
        if tool.signature.workspace:
            values[WORKSPACE] = workspace = self._resolve_workspace(tool, call, values.get(WORKSPACE, ""))
            prepared = msgspec.structs.replace(prepared, workspace=workspace)
        if prepared is call:
            return await self._guard_and_run(tool, call, values)
        with bind_call(prepared):  # so that `current_call` has the state and the workspace, too
            return await self._guard_and_run(tool, prepared, values)

    async def _guard_and_run(self, tool: Tool, call: Call, values: dict[str, Any]) -> object:
        if tool.definition.guards:
            await check_guards(tool.definition.guards, call)
        if session := tool.signature.session:
            if session.required:
                needs_session(call)
            values[session.name] = call.session
        if tool.signature.call:
            values[tool.signature.call.name] = call
        return await self._run_within_deadline(tool, call, values)

    async def _with_state(self, tool: Tool, call: Call) -> Call:
        lifespan = tool.definition.lifespan
        if lifespan is None:
            return call
        try:
            async with asyncio.timeout(self.options.deadline):
                state = await self.server_state.start(lifespan)
        except TimeoutError:
            raise HoldfastError(
                codes.TIMEOUT,
                f"The lifespan did not finish starting within {self.options.deadline:g} s.",
                hint="Call again later. The server's author can start less in the lifespan, or raise `box.deadline`.",
            ) from None
        return msgspec.structs.replace(call, state=state)

    def _resolve_workspace(self, tool: Tool, call: Call, address: str) -> Workspace | None:
        try:
            return resolve_workspace(
                tool.name, address, call.session, call.announced_workspace, self.options.workspaces
            )
        except HoldfastError as error:
            parameter = tool.signature.workspace
            if error.code is codes.MISSING_WORKSPACE and parameter is not None and not parameter.required:
                return None
            raise

    async def _run_within_deadline(self, tool: Tool, call: Call, values: dict[str, Any]) -> object:
        handler = tool.definition.handler
        seconds = self.options.deadline if tool.definition.deadline is None else tool.definition.deadline
        deadline = asyncio.timeout(seconds)
        if call.client_requests.can_send:
            call.client_requests.deadline = deadline
        try:
            async with deadline:
                if tool.signature.given:
                    async with AsyncExitStack() as stack:
                        values |= await self.server_state.provide(tool.signature.given, call, stack)
                        return await self._call_in_thread_if_sync(tool, call, values)
                if tool.is_async:
                    return await handler(**values)
                return await self._call_in_thread_if_sync(tool, call, values)
        except TimeoutError:
            if not deadline.expired():
                raise  # raised by the handler itself
            raise HoldfastError(
                codes.TIMEOUT,
                f"{tool.name} did not finish within {seconds:g} s.",
                hint="The tool's server sets this limit. Request less; the tool's author can raise its `deadline`.",
            ) from None

    async def _call_in_thread_if_sync(self, tool: Tool, call: Call, values: dict[str, Any]) -> object:
        if tool.is_async:
            return await tool.definition.handler(**values)
        owner = call.session.payer if call.session is not None else call.connection
        returned = await run_in_thread(tool.definition.handler, values, owner=owner)
        # A decorator may hide that a handler is async.
        return await returned if inspect.isawaitable(returned) else returned

    def _encode_failure(self, tool: Tool | None, call: Call, envelope: Failed) -> DispatchResult:
        encode_failure = _FAILURE_ENCODERS[self.options.envelope if tool is None else tool.envelope]
        try:
            return DispatchResult(envelope, encode_failure(envelope, self.codes))
        except Exception as error:  # the details cannot be encoded as JSON
            generic = msgspec.structs.replace(
                unexpected_failure(error, call.tool, None), stats=envelope.stats
            )
            return DispatchResult(generic, encode_failure(generic, self.codes))

    def _observe(
        self, tool: Tool | None, call: Call, arguments: bytes | Raw, envelope: Envelope, started_at: float
    ) -> None:
        elapsed_ms = envelope.stats.elapsed_ms
        if elapsed_ms - call.client_requests.waited_seconds * 1000 > self.options.slow_after * 1000:
            log.warning(
                "slow call: %s",
                to_line(call.tool[:80]),
                extra={"tool": call.tool[:80], "elapsed_ms": elapsed_ms},
            )
        if not self.observers:
            return
        trace = call.meta.get("traceparent")
        observation = Observation(
            tool=call.tool,
            operation=tool.operation if tool else None,
            session=call.session,
            workspace=call.session.workspace_id if call.session else call.announced_workspace,
            code="OK" if isinstance(envelope, Ok) else envelope.code,
            started_at=started_at,
            elapsed_ms=elapsed_ms,
            arguments_sha256=hashlib.sha256(arguments).hexdigest(),
            trace=trace if isinstance(trace, str) else "",
        )
        notify_observers(self.observers, observation)


def _stats(call: Call, start: float) -> CallStats:
    return CallStats(
        elapsed_ms=round((time.perf_counter() - start) * 1000, 3), session_id=call.result_meta.session_id
    )
