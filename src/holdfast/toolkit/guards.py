"""Who may call a tool: a guard looks at the call before the handler does, and says no by raising.

A guard that fails in any other way says no as well.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.toolkit.call import Call
from holdfast.toolkit.errors import ToolError

Guard: TypeAlias = Callable[[Call], Awaitable[bool | None] | bool | None]

log = logging.getLogger(__name__)


def needs_session(call: Call) -> None:
    """Only calls that a host vouches for."""
    if call.session is None:
        raise ToolError(codes.NO_CONTEXT, f"{call.tool} works in a session of Holdfast only.")


def direct_only(call: Call) -> None:
    """Only sessions of trust `direct`; no session, no trust."""
    if call.session is None or call.session.trust_level is not Trust.DIRECT:
        raise ToolError(codes.DENIED, f"{call.tool} is for sessions of trust direct only.")


async def pass_guards(guards: Iterable[Guard], call: Call) -> None:
    """Raise unless every guard lets the call pass."""
    for guard in guards:
        try:
            verdict = guard(call)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except HoldfastError:
            raise
        except Exception:
            log.exception("guard crashed", extra={"tool": call.tool})
            verdict = False
        if verdict is False:
            raise ToolError(codes.DENIED, f"{call.tool} is not allowed here.")
