"""Which of several named things may be used: all, none or a list."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of names, or every name there is (`names` is None)."""

    names: frozenset[str] | None

    def allows(self, name: str) -> bool:
        """Whether this name is chosen."""
        return self.names is None or name in self.names

    def narrowed(self, other: "Choice") -> "Choice":
        """What both allow: a choice can only get smaller."""
        if self.names is None:
            return other
        if other.names is None:
            return self
        return Choice(self.names & other.names)


ALL = Choice(None)
NONE = Choice(frozenset())
