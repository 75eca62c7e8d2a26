"""What observers are told of each call: for audit, metrics and traces."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.context import SessionContext
from holdfast.toolkit.operation import Operation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One call, over: no argument and no result is in it, only the arguments' hash."""

    tool: str
    operation: Operation | None
    """None when there is no such tool."""
    session: SessionContext | None
    workspace: str
    code: str
    """`OK`, or the code it failed with."""
    began: float
    """Seconds since the epoch."""
    elapsed_ms: float
    arguments_sha256: str
    trace: str = ""
    """The W3C `traceparent` that came with the request."""

    @property
    def ok(self) -> bool:
        """Whether it went well."""
        return self.code == "OK"


Observer: TypeAlias = Callable[[Observation], None]


def tell(observers: Iterable[Observer], observation: Observation) -> None:
    """Tell everyone; one that fails does not keep the others from hearing, nor the caller from its answer."""
    for observer in observers:
        try:
            observer(observation)
        except Exception:
            log.exception("observer crashed", extra={"tool": observation.tool})
