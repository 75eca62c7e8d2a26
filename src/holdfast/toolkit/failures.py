"""Turn an exception of a handler into a failure that clients see."""

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Any, cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.visible_text import to_line
from holdfast.toolkit.argument_schema import BadArgumentsError
from holdfast.toolkit.errors import ResultMismatchError, ToolError
from holdfast.toolkit.operation import Operation
from holdfast.toolkit.outcome import Failed
from holdfast.toolkit.tool import Tool

log = logging.getLogger(__name__)

# 64 KiB are left for the id and the other members of the message.
MAX_RESULT_BYTES = DEFAULT_LIMITS.line_bytes - 64 * 1024

# The frames of these files are removed from the tracebacks in the log.
_OWN_FILES = (
    str(Path(__file__).parents[1]) + os.sep,
    str(Path(asyncio.__file__).parent) + os.sep,
    contextlib.__file__,
)

# The codes of failed questions to the client, of driven sessions that are gone, and of results that are too large. Handlers
# need not declare them, because the toolkit raises them.
_TOOLKIT_CODES = frozenset(
    {
        codes.BAD_ANSWER,
        codes.DECLINED,
        codes.MISSING_CAPABILITY,
        codes.NOT_RUNNING,
        codes.PEER_ERROR,
        codes.TOO_LARGE,
    }
)


def to_failure(error: BaseException, name: str, tool: Tool | None) -> Failed:
    """The failure of a call in which this error was raised. If the error is the cancellation of this task, it is raised again."""
    if isinstance(error, BadArgumentsError):
        return _argument_failure(name, error)
    if isinstance(error, HoldfastError):
        if tool is not None and error.code not in tool.codes and error.code not in _TOOLKIT_CODES:
            log.warning(
                "undeclared code of %s: %s",
                tool.name,
                error.code.name,
                extra={"tool": tool.name, "code": error.code.name},
            )
        return _expected_failure(error)
    if isinstance(error, asyncio.CancelledError) and is_task_cancelled():
        raise error
    return unexpected_failure(error, name, tool)


def _argument_failure(name: str, error: BadArgumentsError) -> Failed:
    """The failure of a call with bad arguments, with their issues."""
    named = ", ".join(repr(issue["field"]) for issue in error.issues if issue["field"])
    message = f"Bad arguments for {name}: {named}." if named else f"Bad arguments for {name}."
    return Failed(
        code=codes.BAD_ARGUMENT.name, message=message, details={"issues": cast("list[Any]", error.issues)}
    )


def _expected_failure(error: HoldfastError) -> Failed:
    """The failure of a call in which an error with a code was raised."""
    return Failed(
        code=error.code.name,
        message=_replace_surrogates(error.message),
        next_actions=error.next_actions if isinstance(error, ToolError) else (),
        details=error.details,
    )


def unexpected_failure(error: BaseException, name: str, tool: Tool | None) -> Failed:
    """A failure without details. The traceback is logged, unless it could contain the code of an eval tool."""
    if tool is not None and tool.operation is Operation.EVAL:
        log.error("tool crashed: %s", to_line(name), extra={"tool": name, "exception": type(error).__name__})
    else:
        drop_own_frames(error)
        log.error("tool crashed: %s", to_line(name), exc_info=error, extra={"tool": name})
    return Failed(code=codes.INTERNAL_ERROR.name, message=f"{name} failed unexpectedly.")


def drop_own_frames(error: BaseException) -> None:
    """Remove the frames before the author's code from the traceback of an error, and of the errors that led to it.

    If no frame is the author's, the traceback stays, unless the error has a cause or is a `ResultMismatchError`.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        if (each := waiting.pop()) is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += (each.__cause__, each.__context__)
        frame = each.__traceback__
        while frame is not None and _is_own(frame.tb_frame.f_code.co_filename):
            frame = frame.tb_next
        if frame is not None or each.__cause__ is not None or isinstance(each, ResultMismatchError):
            each.__traceback__ = frame


def _is_own(file: str) -> bool:
    """Whether a file belongs to Holdfast, asyncio or contextlib."""
    return file.startswith(_OWN_FILES)


def check_result_size(name: str, size: int) -> None:
    """Raise TOO_LARGE if a result does not fit into a message, and log it."""
    if size <= MAX_RESULT_BYTES:
        return
    log.error("the result of %s is too large: %d bytes", to_line(name), size, extra={"tool": name})
    raise HoldfastError(
        codes.TOO_LARGE,
        f"The result of {name} has {size} bytes; the maximum is {MAX_RESULT_BYTES}.",
        hint="Ask for less, if the arguments allow it. The tool's author can return pages, or the path or URI of a file.",
    )


def is_task_cancelled() -> bool:
    """Whether the calling task is being cancelled; if not, the handler raised CancelledError itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _replace_surrogates(text: str) -> str:
    """Make a string encodable as UTF-8."""
    return text.encode(errors="replace").decode()
