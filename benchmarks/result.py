"""One comparison: our figure, a peer's, and what we want of the two."""

import operator
from dataclasses import dataclass

_COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Two figures of one kind, measured in one run; a goal such as `>= 10` is about their ratio."""

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    goal: str = ""

    @property
    def ratio(self) -> float:
        """Ours by the peer's."""
        return self.ours / self.peer

    @property
    def met(self) -> bool:
        """Whether the ratio meets the goal; without a goal there is none to miss."""
        if not self.goal:
            return True
        comparison, bound = self.goal.split()
        return _COMPARE[comparison](self.ratio, float(bound))
