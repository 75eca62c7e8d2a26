"""One comparison of our figure with a peer's."""

import operator
from dataclasses import dataclass

_COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Two figures, measured in the same run. A goal such as `>= 10` is for their ratio."""

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    goal: str = ""

    @property
    def ratio(self) -> float:
        """Our figure divided by the peer's."""
        return self.ours / self.peer

    @property
    def met(self) -> bool:
        """Whether the ratio meets the goal; always true without a goal."""
        if not self.goal:
            return True
        comparison, bound = self.goal.split()
        return _COMPARE[comparison](self.ratio, float(bound))
