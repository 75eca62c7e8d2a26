"""Turn a call into an envelope: look up the tool, parse, guard, run, wrap, observe. Failures become envelopes too."""

import asyncio
import hashlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.call import CallStats, Envelope, Failed, Ok
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads
from holdfast.model.workspace import Workspace
from holdfast.toolkit.argument_schema import BadArgumentsError
from holdfast.toolkit.call import Call, bind_call
from holdfast.toolkit.content import Content, Reply
from holdfast.toolkit.envelope import encode_result, to_data
from holdfast.toolkit.errors import CodeRegistry, ToolError
from holdfast.toolkit.eval_gate import check_keywords
from holdfast.toolkit.guards import check_guards, needs_session
from holdfast.toolkit.observers import Observation, Observer, notify_observers
from holdfast.toolkit.operation import Operation
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.tool import Tool
from holdfast.toolkit.workspace import WorkspaceLookup, resolve_workspace
from holdfast.wire.frame import EMPTY_OBJECT, Raw

log = logging.getLogger(__name__)

_NULL = Raw(b"null")
_MAX_THREADS = 128
_THREADS_PER_CALLER = 64  # at most; fewer while other callers need threads
_THREADS = WorkerThreads("tool", threads=_MAX_THREADS, per_owner=_THREADS_PER_CALLER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """Options that apply to every call; times are in seconds."""

    workspaces: WorkspaceLookup
    allow_eval: bool = False
    deadline: float = 120.0
    slow_after: float = 1.0


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The envelope of a call, and the encoded result of `tools/call` that contains it."""

    envelope: Envelope
    result: Raw


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Finds the tool of a call, runs its handler in the caller's context, and turns every outcome into an envelope."""

    tools: Mapping[str, Tool]
    codes: CodeRegistry
    options: DispatchOptions
    observers: Sequence[Observer] = field(default=())

    async def dispatch(self, call: Call, arguments: Raw = EMPTY_OBJECT) -> DispatchResult:
        """Run a call. Raises only when the calling task is cancelled."""
        started_at, start = time.time(), time.perf_counter()
        if call.session is not None:
            call.result_meta.session_id = call.session.session_id
        tool = self.tools.get(call.tool)
        result: DispatchResult | None = None
        envelope: Envelope
        try:
            if tool is None:
                raise HoldfastError(codes.UNKNOWN_TOOL, f"There is no tool {call.tool[:80]!r} here.")
            with bind_call(call):
                data, content = _split_content(await self._run(tool, call, arguments))
            envelope = Ok(data=data, stats=_stats(call, start))
            result = DispatchResult(envelope, encode_result(envelope, self.codes, content))
        except BadArgumentsError as error:
            envelope = _argument_failure(call, error)
        except HoldfastError as error:
            self._log_if_undeclared(tool, error)
            envelope = _expected_failure(error)
        except asyncio.CancelledError:
            if _is_task_cancelled():
                raise
            envelope = _unexpected_failure(call, tool)
        except (Exception, SystemExit):
            envelope = _unexpected_failure(call, tool)
        if result is None:
            result = self._encode_failure(call, replace(envelope, stats=_stats(call, start)))
        self._observe(tool, call, arguments, result.envelope, started_at)
        return result

    async def _run(self, tool: Tool, call: Call, arguments: Raw) -> object:
        raw = EMPTY_OBJECT if arguments == _NULL else arguments
        values = tool.signature.arguments.parse(raw)
        if tool.operation is Operation.EVAL:
            check_keywords(tool.name, msgspec.json.decode(raw))
        if tool.definition.requires_eval_flag and not self.options.allow_eval:
            raise ToolError(
                codes.EVAL_DISABLED, f"{tool.name} runs only when the server was started with --allow-eval."
            )
        if tool.signature.workspace:
            values[WORKSPACE] = workspace = self._resolve_workspace(tool, call, values.get(WORKSPACE, ""))
            call = msgspec.structs.replace(call, workspace=workspace)
        if tool.definition.guards:
            await check_guards(tool.definition.guards, call)
        if session := tool.signature.session:
            if session.required:
                needs_session(call)
            values[session.name] = call.session
        if tool.signature.call:
            values[tool.signature.call.name] = call
        return await self._run_handler(tool, call, values)

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

    async def _run_handler(self, tool: Tool, call: Call, values: dict[str, Any]) -> object:
        handler = tool.definition.handler
        seconds = self.options.deadline if tool.definition.deadline is None else tool.definition.deadline
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                if tool.is_async:
                    return await handler(**values)
                owner = call.session.session_id if call.session is not None else call.connection
                return await _THREADS.run(_call_handler, handler, values, owner=owner)
        except TimeoutError:
            if not deadline.expired():
                raise  # raised by the handler itself
            raise HoldfastError(codes.TIMEOUT, f"{tool.name} did not finish within {seconds:g} s.") from None

    def _encode_failure(self, call: Call, envelope: Envelope) -> DispatchResult:
        try:
            return DispatchResult(envelope, encode_result(envelope, self.codes))
        except Exception:  # the details cannot be encoded as JSON
            generic = replace(_unexpected_failure(call, None), stats=envelope.stats)
            return DispatchResult(generic, encode_result(generic, self.codes))

    def _log_if_undeclared(self, tool: Tool | None, error: HoldfastError) -> None:
        if tool is not None and error.code not in tool.codes:
            log.warning("undeclared code", extra={"tool": tool.name, "code": error.code.name})

    def _observe(
        self, tool: Tool | None, call: Call, arguments: Raw, envelope: Envelope, started_at: float
    ) -> None:
        elapsed_ms = envelope.stats.elapsed_ms
        if elapsed_ms > self.options.slow_after * 1000:
            log.warning("slow call", extra={"tool": call.tool[:80], "elapsed_ms": elapsed_ms})
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


def _split_content(returned: object) -> tuple[Any, Sequence[Content]]:
    """Split what a handler returned into its data and its content blocks."""
    if isinstance(returned, Reply):
        return to_data(returned.data), tuple(returned.content)
    if isinstance(returned, Content):
        return {}, (returned,)
    return to_data(returned), ()


def _stats(call: Call, start: float) -> CallStats:
    return CallStats(
        elapsed_ms=round((time.perf_counter() - start) * 1000, 3), session_id=call.result_meta.session_id
    )


def _argument_failure(call: Call, error: BadArgumentsError) -> Failed:
    named = ", ".join(repr(issue["field"]) for issue in error.issues if issue["field"])
    message = f"Bad arguments for {call.tool}: see {named}." if named else f"Bad arguments for {call.tool}."
    return Failed(
        code=codes.BAD_ARGUMENT.name, message=message, details={"issues": cast("list[Any]", error.issues)}
    )


def _expected_failure(error: HoldfastError) -> Failed:
    return Failed(
        code=error.code.name,
        message=_replace_surrogates(error.message),
        next_actions=error.next_actions if isinstance(error, ToolError) else (),
        details=error.details,
    )


def _unexpected_failure(call: Call, tool: Tool | None) -> Failed:
    """A failure without details. The traceback is logged, unless it could contain the code of an eval tool."""
    error = sys.exc_info()[1]
    if tool is not None and tool.operation is Operation.EVAL:
        log.error("tool crashed", extra={"tool": call.tool, "exception": type(error).__name__})
    else:
        log.error("tool crashed", exc_info=error, extra={"tool": call.tool})
    return Failed(code=codes.INTERNAL_ERROR.name, message=f"{call.tool} failed unexpectedly.")


def _is_task_cancelled() -> bool:
    """Whether the calling task is being cancelled; if not, the handler raised CancelledError itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _replace_surrogates(text: str) -> str:
    """Make a text encodable as UTF-8."""
    return text.encode(errors="replace").decode()


def _call_handler(handler: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a blocking handler, in a thread. If the caller is cancelled, the call continues and its result is dropped."""
    try:
        return handler(**arguments)
    except StopIteration:  # a future cannot carry it
        raise RuntimeError("a handler raised StopIteration") from None
