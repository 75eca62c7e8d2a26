"""The last readable content of config files, for sessions that are open while a file is half saved."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace

from holdfast.model.resolution import Refusal
from holdfast.resolve.load import LEFT_OUT, LoadedEntries

log = logging.getLogger(__name__)
_MAX_FILES = 256
_KEPT = "Open sessions keep the servers that it last had; new sessions get none of them until the file is corrected."


class LastGood:
    """What the config files of a host contained when they could last be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, LoadedEntries] = {}
        self._reported: dict[str, tuple[Refusal, ...]] = {}

    def note(self, path: str, loaded: LoadedEntries, *, is_open: bool) -> LoadedEntries:
        """Remember what a file contains, and return what a session gets: the same, except while the file is damaged.

        Then a session that is open (`is_open`) keeps what the file last contained. May be called in any thread.
        """
        with self._lock:
            return self._note(path, loaded, is_open=is_open)

    def _note(self, path: str, loaded: LoadedEntries, *, is_open: bool) -> LoadedEntries:
        if not loaded.is_damaged:
            self._reported.pop(path, None)
            self._entries.pop(path, None)
            self._entries[path] = loaded
            if len(self._entries) > _MAX_FILES:
                del self._entries[next(iter(self._entries))]
            return loaded
        kept = self._entries.get(path)
        if not is_open or kept is None or not kept.entries:
            return loaded
        self._report(path, loaded.refusals)
        return LoadedEntries(entries=kept.entries, refusals=tuple(_explain(loaded.refusals)))

    def _report(self, path: str, refusals: tuple[Refusal, ...]) -> None:
        """Log the damage once, not for each session."""
        if self._reported.get(path) == refusals:
            return
        self._reported[path] = refusals
        for refusal in _explain(refusals):
            log.warning("%s: %s", path, refusal.reason, extra={"path": path})


def _explain(refusals: Iterable[Refusal]) -> Iterable[Refusal]:
    return (
        replace(refusal, reason=f"{refusal.reason.removesuffix(LEFT_OUT).rstrip()} {_KEPT}")
        for refusal in refusals
    )
