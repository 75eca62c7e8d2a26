"""Guards decide who may call a tool. A guard runs before the handler and denies the call by raising or returning False.

A guard that crashes denies the call too.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.visible_text import to_line
from holdfast.toolkit.call import Call
from holdfast.toolkit.errors import ToolError

Guard: TypeAlias = Callable[[Call], Awaitable[bool | None] | bool | None]

log = logging.getLogger(__name__)


def needs_session(call: Call) -> None:
    """Deny anonymous callers."""
    if call.session is None:
        raise ToolError(codes.NO_CONTEXT, f"{call.tool} works only in a Holdfast session.")


def direct_only(call: Call) -> None:
    """Deny sandboxed sessions and anonymous callers."""
    if call.session is None or call.session.trust_level is not Trust.DIRECT:
        raise ToolError(codes.DENIED, f"{call.tool} is only for sessions whose trust is direct.")


async def check_guards(guards: Iterable[Guard], call: Call) -> None:
    """Run the guards in order. If one denies the call, raise the error that it raised, or else DENIED."""
    for guard in guards:
        try:
            verdict = guard(call)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except HoldfastError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit):
            log.exception("guard crashed: %s", to_line(call.tool), extra={"tool": call.tool})
            verdict = False
        if verdict is False:
            raise ToolError(codes.DENIED, f"{call.tool} is not allowed here.")
