"""Lets Ctrl-Z wait, for a limited time, until no transaction is open, because an open one blocks other processes."""

import os
import signal
import threading
from contextlib import ExitStack
from types import FrameType
from weakref import WeakSet

_MAX_WAIT_SECONDS = 2.0  # a transaction may itself wait for another process
_locks: "WeakSet[threading.Lock]" = WeakSet()


def new_transaction_lock() -> threading.Lock:
    """A lock to hold during each transaction. While it is held, Ctrl-Z suspends the process only after `_MAX_WAIT_SECONDS`."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def suspend_between_transactions() -> None:
    """Make SIGTSTP (Ctrl-Z) wait for the end of open transactions, unless it has a handler or is ignored. Call this in the main thread."""
    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        signal.signal(signal.SIGTSTP, _suspend)


def _suspend(number: int, frame: FrameType | None) -> None:
    with ExitStack() as stack:
        for lock in [*_locks]:
            if lock.acquire(timeout=_MAX_WAIT_SECONDS):
                stack.callback(lock.release)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the process continues
    signal.signal(signal.SIGTSTP, _suspend)
