"""End a confined server when a folder of packages in one of its roots begins to share files with other projects.

The user may install packages while the server runs: uv, pnpm and bun then link the files of their store into the folder. The next
start of the server makes the folder read-only.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.linked_packages import find_linked_packages

log = logging.getLogger(__name__)

# The least time between two searches of a root, and how many times as long as a search it is.
_PAUSE_SECONDS = 1.0
_PAUSE_FACTOR = 10
_MAX_KEPT = 256
_THREADS = WorkerThreads("packages", threads=4, per_owner=1)
_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagesInRoot:
    """A root that a server can change, and the names in it that are not searched."""

    path: str
    not_searched: frozenset[str]
    """The names that are read-only for the server, and those that it may change by a grant."""


def watch_packages(child: Child, roots: Collection[PackagesInRoot]) -> None:
    """End the server once it could change files that projects share. The watch ends with the server."""
    if roots:
        task = asyncio.get_running_loop().create_task(_watch(child, roots))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        child.on_gone(lambda: _cancel(task))


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _watch(child: Child, roots: Collection[PackagesInRoot]) -> None:
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        for root in roots:
            if found := await _THREADS.run(_recent_searches.find, root, owner=root.path):
                log.warning(
                    "a confined server was ended, because packages were installed that may share files with other projects (hard"
                    " links); if you do not trust the server, install the packages again and check the package manager's store",
                    extra={"server_pid": child.pid, "root": root.path, "names": sorted(found)},
                )
                child.terminate_quickly()
                return


class _RecentSearches:
    """The last searches, so that all servers in a root share one search, and searches take a small part of the time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[PackagesInRoot, tuple[float, frozenset[str]]] = {}

    def find(self, root: PackagesInRoot) -> frozenset[str]:
        """The linked folders of packages. Blocks. Each root has at most one thread, so a server waits for the search of another one."""
        begun = time.monotonic()
        with self._lock:
            pause_ends, found = self._found.get(root, (begun, frozenset[str]()))
        if begun < pause_ends:
            return found
        found = find_linked_packages(root.path, root.not_searched)
        ended = time.monotonic()
        with self._lock:
            if len(self._found) >= _MAX_KEPT:
                self._found.clear()
            pause = max(_PAUSE_SECONDS, _PAUSE_FACTOR * (ended - begun))
            self._found[root] = ended + pause, found
        return found


_recent_searches = _RecentSearches()
