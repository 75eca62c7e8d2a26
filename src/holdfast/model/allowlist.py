"""Which names are allowed: all, none or a list."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowlist:
    """A set of allowed names, or all names if `names` is None."""

    names: frozenset[str] | None

    def allows(self, name: str) -> bool:
        return self.names is None or name in self.names

    def intersect(self, other: "Allowlist") -> "Allowlist":
        """The names that both allow."""
        if self.names is None:
            return other
        if other.names is None:
            return self
        return Allowlist(self.names & other.names)


ALLOW_ALL = Allowlist(None)
ALLOW_NONE = Allowlist(frozenset())
