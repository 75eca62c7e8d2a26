"""Measures how long each phase of opening a session takes."""

import time


class OpeningTimer:
    """The seconds of each phase. A phase begins when the previous one ends; the first begins now."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def end(self, phase: str) -> None:
        """Note that this phase has ended, and that the next one begins."""
        now = time.monotonic()
        self.seconds[phase] = round(now - self._began, 4)
        self._began = now
