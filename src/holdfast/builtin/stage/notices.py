"""What happened in a stage and is not reported yet."""

from collections import deque
from dataclasses import dataclass, field

from holdfast.builtin.stage.limits import MAX_NOTICES, MAX_TEXT


@dataclass(slots=True)
class Notices:
    """What the next answer reports, such as dialogs and new tabs."""

    items: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=MAX_NOTICES))
    dropped: int = 0

    def add(self, what: str, page_text: str) -> None:
        if len(self.items) == MAX_NOTICES:
            self.dropped += 1
        self.items.append((what, page_text[:MAX_TEXT]))

    def take(self) -> list[tuple[str, str]]:
        """Return all notices, and remove them."""
        taken = list(self.items)
        if self.dropped:
            taken.append((f"{self.dropped} more", ""))
        self.items.clear()
        self.dropped = 0
        return taken
