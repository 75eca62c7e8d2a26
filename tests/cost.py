"""What work costs, measured so that a busy machine does not change the result."""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], object]) -> int:
    """How many functions this work calls, those written in C included. It is the same number each time."""
    calls = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def least_cpu_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU time that this thread takes for the work: other processes and the collector do not count."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return min(_cpu_seconds(work) for _ in range(times))
    finally:
        if collects:
            gc.enable()


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
