"""Measures how long each stage of opening a session takes."""

import time


class StageTimer:
    """The seconds of each stage. A stage begins when the previous one ends; the first begins now."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def end(self, stage: str) -> None:
        """Note that this stage has ended, and that the next one begins."""
        now = time.monotonic()
        self.seconds[stage] = round(now - self._began, 4)
        self._began = now
