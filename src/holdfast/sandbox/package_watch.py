"""End a confined server when a folder of packages in one of its roots begins to share files with other projects.

The user may install packages while the server runs: uv, pnpm and bun then link the files of their store into the folder. The next
start of the server makes the folder read-only.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.linked_packages import WHILE_RUNNING, find_linked_packages

log = logging.getLogger(__name__)

# The least time between two searches of a root, and how many times as long as a search it is.
_PAUSE_SECONDS = 1.0
_PAUSE_FACTOR = 10
_MAX_KEPT = 256
_THREADS = WorkerThreads("packages", threads=4, per_owner=1)
_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRoots:
    """The roots that a server can change, and where no packages are looked for."""

    roots: tuple[str, ...] = ()
    not_searched: frozenset[str] = frozenset()
    """The paths that are read-only for the server, and those that it may change by a grant."""


def watch_packages(child: Child, watched: PackageRoots) -> None:
    """End the server once it could change files that projects share. The watch ends with the server."""
    if watched.roots:
        task = asyncio.get_running_loop().create_task(_watch(child, watched))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        child.on_gone(lambda: _cancel(task))


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _watch(child: Child, watched: PackageRoots) -> None:
    found: Mapping[str, frozenset[str]] = {}
    while not found:
        await asyncio.sleep(_PAUSE_SECONDS)
        found = await _THREADS.run(_recent_searches.find, watched, owner=watched.roots[0])
    log.warning(
        "a confined server was ended, because packages were installed that may share files with other projects (hard"
        " links); if you do not trust the server, install the packages again and check the package manager's store",
        extra={"server_pid": child.pid, "found": {root: sorted(names) for root, names in found.items()}},
    )
    child.terminate_quickly()


class _RecentSearches:
    """When roots were searched, so that all servers with the same roots share one search, and searches take a small part of the time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pause_ends: dict[PackageRoots, float] = {}

    def find(self, watched: PackageRoots) -> Mapping[str, frozenset[str]]:
        """The linked folders of packages; none if a recent search found none. Blocks.

        The same roots have at most one thread, so a server waits for the search of another one.
        """
        begun = time.monotonic()
        with self._lock:
            if begun < self._pause_ends.get(watched, begun):
                return {}
        found = find_linked_packages(watched.roots, watched.not_searched, WHILE_RUNNING)
        ended = time.monotonic()
        if not found:
            with self._lock:
                if len(self._pause_ends) >= _MAX_KEPT:
                    self._pause_ends.clear()
                self._pause_ends[watched] = ended + max(_PAUSE_SECONDS, _PAUSE_FACTOR * (ended - begun))
        return found


_recent_searches = _RecentSearches()
