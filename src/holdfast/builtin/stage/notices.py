"""What happened in a stage and is not reported yet."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.builtin.stage.limits import MAX_NOTICES, MAX_TEXT


class Notice(NamedTuple):
    """What happened, in Holdfast's words, and what the page wrote about it, such as a dialog's message."""

    what: str
    page_text: str


@dataclass(slots=True)
class Notices:
    """The notices that the next answer reports, such as dialogs and new tabs. If there are too many, the oldest are dropped."""

    unreported: deque[Notice] = field(default_factory=lambda: deque[Notice](maxlen=MAX_NOTICES))
    dropped: int = 0

    def add(self, what: str, page_text: str) -> None:
        if len(self.unreported) == MAX_NOTICES:
            self.dropped += 1
        self.unreported.append(Notice(what, page_text[:MAX_TEXT]))

    def take(self) -> list[Notice]:
        """Return all notices, and remove them."""
        taken = list(self.unreported)
        if self.dropped:
            taken.append(Notice(f"{self.dropped} more", ""))
        self.unreported.clear()
        self.dropped = 0
        return taken
