"""Owns a call from its name to its envelope: look up, parse, guard, run, wrap, observe. It never raises."""

import asyncio
import hashlib
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.envelope import Envelope, Failed, Meta, Ok
from holdfast.model.errors import HoldfastError
from holdfast.model.workspace import Workspace
from holdfast.toolkit.arguments import BadArguments
from holdfast.toolkit.call import Call, running
from holdfast.toolkit.codes import Codes
from holdfast.toolkit.content import Content, Reply
from holdfast.toolkit.envelope import data_of, wire_result
from holdfast.toolkit.errors import ToolError
from holdfast.toolkit.evalgate import check_payload
from holdfast.toolkit.guards import needs_session, pass_guards
from holdfast.toolkit.observe import Observation, Observer, tell
from holdfast.toolkit.operation import Operation
from holdfast.toolkit.signature import WORKSPACE
from holdfast.toolkit.threads import in_thread
from holdfast.toolkit.tool import Tool
from holdfast.toolkit.workspace import Workspaces, resolve_workspace
from holdfast.wire.frame import EMPTY, Raw

log = logging.getLogger(__name__)

_NULL = Raw(b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every call; times are in seconds."""

    workspaces: Workspaces
    allow_eval: bool = False
    deadline: float = 120.0
    slow_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: the envelope, and the result that says so on the wire."""

    envelope: Envelope
    result: Raw


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Finds the handler of a call, runs it in the caller's context, and folds all that can happen into an envelope."""

    tools: Mapping[str, Tool]
    codes: Codes
    rules: Rules
    observers: Sequence[Observer] = field(default=())

    async def dispatch(self, call: Call, arguments: Raw = EMPTY) -> Outcome:
        """Call a tool. Only the caller's own cancellation gets out of here."""
        at, began = time.time(), time.perf_counter()
        if call.session is not None:
            call.stamp.session_id = call.session.session_id
        tool = self.tools.get(call.tool)
        outcome: Outcome | None = None
        envelope: Envelope
        try:
            if tool is None:
                raise HoldfastError(codes.UNKNOWN_TOOL, f"There is no tool {call.tool[:80]!r} here.")
            with running(call):
                data, content = _parted(await self._run(tool, call, arguments))
            envelope = Ok(data=data, meta=_meta(call, began))
            outcome = Outcome(envelope, wire_result(envelope, self.codes, content))
        except BadArguments as error:
            envelope = _bad_arguments(call, error)
        except HoldfastError as error:
            self._notice_undeclared(tool, error)
            envelope = _foreseen(error)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            envelope = _crashed(call, tool)
        except (Exception, SystemExit):
            envelope = _crashed(call, tool)
        if outcome is None:
            outcome = self._failed(call, replace(envelope, meta=_meta(call, began)))
        self._observe(tool, call, arguments, outcome.envelope, at)
        return outcome

    async def _run(self, tool: Tool, call: Call, arguments: Raw) -> object:
        given = tool.signature.arguments.parse(EMPTY if arguments == _NULL else arguments)
        if tool.operation is Operation.EVAL:
            check_payload(tool.name, given)
        if tool.definition.requires_eval_flag and not self.rules.allow_eval:
            raise ToolError(
                codes.EVAL_DISABLED, f"{tool.name} runs only when the server was started with --allow-eval."
            )
        if tool.signature.workspace:
            given[WORKSPACE] = workspace = self._workspace(tool, call, given.get(WORKSPACE, ""))
            call = msgspec.structs.replace(call, workspace=workspace)
        if tool.definition.guards:
            await pass_guards(tool.definition.guards, call)
        if session := tool.signature.session:
            if session.required:
                needs_session(call)
            given[session.name] = call.session
        if tool.signature.call:
            given[tool.signature.call.name] = call
        return await self._within_deadline(tool, given)

    def _workspace(self, tool: Tool, call: Call, named: str) -> Workspace | None:
        try:
            return resolve_workspace(tool.name, named, call.session, call.announced, self.rules.workspaces)
        except HoldfastError as error:
            wanted = tool.signature.workspace
            if error.code is codes.MISSING_WORKSPACE and wanted is not None and not wanted.required:
                return None
            raise

    async def _within_deadline(self, tool: Tool, given: dict[str, Any]) -> object:
        handler = tool.definition.handler
        seconds = self.rules.deadline if tool.definition.deadline is None else tool.definition.deadline
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                if tool.is_async:
                    return await handler(**given)
                return await in_thread(handler, **given)
        except TimeoutError:
            if not deadline.expired():
                raise  # the handler's own
            raise HoldfastError(codes.TIMEOUT, f"{tool.name} did not finish within {seconds:g} s.") from None

    def _failed(self, call: Call, envelope: Envelope) -> Outcome:
        try:
            return Outcome(envelope, wire_result(envelope, self.codes))
        except Exception:  # details that JSON cannot say
            bland = replace(_crashed(call, None), meta=envelope.meta)
            return Outcome(bland, wire_result(bland, self.codes))

    def _notice_undeclared(self, tool: Tool | None, error: HoldfastError) -> None:
        if tool is not None and error.code not in tool.codes:
            log.warning("undeclared code", extra={"tool": tool.name, "code": error.code.name})

    def _observe(self, tool: Tool | None, call: Call, arguments: Raw, envelope: Envelope, at: float) -> None:
        elapsed_ms = envelope.meta.elapsed_ms
        if elapsed_ms > self.rules.slow_after * 1000:
            log.warning("slow call", extra={"tool": call.tool[:80], "elapsed_ms": elapsed_ms})
        if not self.observers:
            return
        trace = call.meta.get("traceparent")
        observation = Observation(
            tool=call.tool,
            operation=tool.operation if tool else None,
            session=call.session,
            workspace=call.session.workspace_id if call.session else call.announced,
            code="OK" if isinstance(envelope, Ok) else envelope.code,
            began=at,
            elapsed_ms=elapsed_ms,
            arguments_sha256=hashlib.sha256(arguments).hexdigest(),
            trace=trace if isinstance(trace, str) else "",
        )
        tell(self.observers, observation)


def _parted(returned: object) -> tuple[Any, Sequence[Content]]:
    if isinstance(returned, Reply):
        return data_of(returned.data), tuple(returned.content)
    if isinstance(returned, Content):
        return {}, (returned,)
    return data_of(returned), ()


def _meta(call: Call, began: float) -> Meta:
    return Meta(elapsed_ms=round((time.perf_counter() - began) * 1000, 3), session_id=call.stamp.session_id)


def _bad_arguments(call: Call, error: BadArguments) -> Failed:
    named = ", ".join(repr(issue["field"]) for issue in error.issues if issue["field"])
    message = (
        f"{call.tool} cannot be called so: see {named}." if named else f"{call.tool} cannot be called so."
    )
    return Failed(
        code=codes.BAD_ARGUMENT.name, message=message, details={"issues": cast("list[Any]", error.issues)}
    )


def _foreseen(error: HoldfastError) -> Failed:
    return Failed(
        code=error.code.name,
        message=_sayable(error.message),
        next_actions=error.next_actions if isinstance(error, ToolError) else (),
        details=error.details,
    )


def _crashed(call: Call, tool: Tool | None) -> Failed:
    """Told blandly; the log has the traceback, unless the code that was evaluated could stand in it."""
    error = sys.exc_info()[1]
    if tool is not None and tool.operation is Operation.EVAL:
        log.error("tool crashed", extra={"tool": call.tool, "exception": type(error).__name__})
    else:
        log.error("tool crashed", exc_info=error, extra={"tool": call.tool})
    return Failed(code=codes.INTERNAL_ERROR.name, message=f"{call.tool} failed unexpectedly.")


def _is_cancelled() -> bool:
    """Whether the one who waits for this call took it back; else the handler cancelled itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _sayable(text: str) -> str:
    return text.encode(errors="replace").decode()
