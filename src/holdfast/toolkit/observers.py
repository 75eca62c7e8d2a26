"""Observers are notified after each call that was not cancelled, for audit, metrics and traces."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.context import SessionContext
from holdfast.model.visible_text import to_line
from holdfast.toolkit.operation import Operation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A finished call. It holds no arguments and no result, only the hash of the arguments."""

    tool: str
    operation: Operation | None
    """None when there is no such tool."""
    session: SessionContext | None
    workspace: str
    """The session's workspace, or the one that an anonymous client announced; not the `workspace` argument."""
    code: str
    """`OK`, or the code that the call failed with."""
    started_at: float
    """Seconds since the epoch."""
    elapsed_ms: float
    arguments_sha256: str
    trace: str = ""
    """The `traceparent` in the request's `_meta` (W3C Trace Context); empty if it has none."""

    @property
    def ok(self) -> bool:
        return self.code == "OK"


Observer: TypeAlias = Callable[[Observation], None]


def notify_observers(observers: Iterable[Observer], observation: Observation) -> None:
    """Notify every observer. If one crashes, the others are still notified and the call is not affected."""
    for observer in observers:
        try:
            observer(observation)
        except Exception:
            log.exception("observer crashed: %s", to_line(observation.tool), extra={"tool": observation.tool})
