"""Observers are notified of each call, for audit, metrics and traces."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.context import SessionContext
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
    code: str
    """`OK`, or the code that the call failed with."""
    began: float
    """Seconds since the epoch."""
    elapsed_ms: float
    arguments_sha256: str
    trace: str = ""
    """The W3C `traceparent` of the request."""

    @property
    def ok(self) -> bool:
        return self.code == "OK"


Observer: TypeAlias = Callable[[Observation], None]


def notify_observers(observers: Iterable[Observer], observation: Observation) -> None:
    """Notify every observer. If one crashes, the others are still notified and the call still succeeds."""
    for observer in observers:
        try:
            observer(observation)
        except Exception:
            log.exception("observer crashed", extra={"tool": observation.tool})
