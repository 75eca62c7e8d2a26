"""Measures how long each phase of opening a session takes."""

import time


class OpeningTimer:
    """The seconds of each phase. The first begins when the timer is made; each of the others when the previous phase ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def end(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[phase] = round(now - self._began, 4)
        self._began = now
