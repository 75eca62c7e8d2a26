"""End a confined server when one of its guards has vanished.

A guard is a mount on a name in a root. If a program outside of the sandbox deletes or replaces that name, the kernel removes
the mount, and the server could create the name itself. So the roots of running servers are watched.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from holdfast.model.confined_folders import RootLocks
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.opened_path import OpenedPath
from holdfast.sandbox.placeholders import PlaceholderVersion, placeholder_version

log = logging.getLogger(__name__)

_MOVED_FROM, _MOVED_TO, _DELETED, _DELETED_SELF, _MOVED_SELF, _ONLY_FOLDERS = (
    0x40,
    0x80,
    0x200,
    0x400,
    0x800,
    0x1000000,
)
_EVENTS = _MOVED_FROM | _MOVED_TO | _DELETED | _DELETED_SELF | _MOVED_SELF | _ONLY_FOLDERS
_EVENT = struct.Struct("iIII")
_READ_BYTES = 16 * 1024
_PAUSE_SECONDS = 0.02  # between two reads, so that a server that floods its root costs little
_CHECK_SECONDS = 1.0
_CHECK_SECONDS_WITHOUT_EVENTS = 0.1
_THREADS = WorkerThreads("guards", threads=4, per_owner=1)


class GuardedRoot:
    """The guarded names of one root of a running server, as they were when it was started."""

    def __init__(
        self,
        root: OpenedPath,
        locks: RootLocks,
        placeholders: Mapping[str, PlaceholderVersion],
        others: Collection[OpenedPath],
    ) -> None:
        """`placeholders` and `others` are the guarded names. The `others` stay open, so that no new file gets their inodes."""
        self.path = root.path
        self._locks = locks
        self._placeholders = dict(placeholders)
        self._lock = threading.Lock()
        self._root = os.dup(root.fd)
        self._others = {opened.name: os.dup(opened.fd) for opened in others}

    def watch(self, inotify: "_Inotify") -> int:
        """Watch the names in this root. Return the number of the watch; -1 if that is not possible."""
        with self._lock:
            return inotify.add(f"/proc/self/fd/{self._root}") if self._root >= 0 else -1

    def find_problem(self) -> str:
        """What has changed since the start; empty if nothing has. Blocks."""
        with self._lock:
            if self._root < 0:
                return ""
            for name, version in self._placeholders.items():
                if placeholder_version(self._root, name) != version:
                    return f"{self.path}/{name} was removed or replaced"
            for name, fd in self._others.items():
                if not self._is_same(name, fd):
                    return f"{self.path}/{name} was removed or replaced"
            return "" if self._locks.is_held() else "the locks of running servers were removed"

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for fd in (self._root, *self._others.values()):
                os.close(fd)
            self._root = -1

    def _is_same(self, name: str, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(name, dir_fd=self._root, follow_symlinks=False), os.fstat(fd))
        except OSError:
            return False


class GuardWatch:
    """Watches the roots of the running servers that one host's keeper started, and kills a server if a guard vanishes."""

    def __init__(self) -> None:
        self._servers: dict[Child, _WatchedServer] = {}
        self._inotify: _Inotify | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def add(self, child: Child, roots: Collection[GuardedRoot]) -> None:
        """Watch these roots until no process of the server is left. Kill the server if a guard in one of them vanishes."""
        if not roots:
            return
        if self._inotify is None:
            self._inotify = _Inotify()
            self._read_later()
            self._tick()
        server = _WatchedServer(child, roots)
        server.watches = {root.watch(self._inotify) for root in roots}
        self._servers[child] = server
        child.on_gone(partial(self._remove, child))
        server.check_soon()

    def close(self) -> None:
        """Stop watching."""
        for timer in (self._timer, self._reading):
            if timer is not None:
                timer.cancel()
        if self._inotify is not None:
            if self._inotify.fd >= 0:
                asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None

    def _remove(self, child: Child) -> None:
        server = self._servers.pop(child)
        used = {watch for other in self._servers.values() for watch in other.watches}
        if self._inotify is not None:
            for watch in server.watches - used:
                self._inotify.remove(watch)

    def _tick(self) -> None:
        """Check all servers from time to time: a file system may report no events, or more than the queue can hold."""
        assert self._inotify is not None
        for server in self._servers.values():
            server.check_soon()
        seconds = _CHECK_SECONDS if self._inotify.works else _CHECK_SECONDS_WITHOUT_EVENTS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _read_later(self) -> None:
        assert self._inotify is not None
        if self._inotify.fd >= 0:
            asyncio.get_running_loop().add_reader(self._inotify.fd, self._read)

    def _read(self) -> None:
        if self._inotify is None:
            return
        changed = set(self._inotify.read())
        for server in self._servers.values():
            if not changed.isdisjoint(server.watches):
                server.check_soon()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify.fd)
        self._reading = loop.call_later(_PAUSE_SECONDS, self._read_later)


class _WatchedServer:
    def __init__(self, child: Child, roots: Collection[GuardedRoot]) -> None:
        self._child = child
        self._roots = roots
        self.watches: set[int] = set()
        self._check: asyncio.Task[None] | None = None
        self._is_due = False

    def check_soon(self) -> None:
        """Check the roots in a thread, because their file system may not respond. Kill the server if a guard has vanished."""
        self._is_due = True
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().create_task(self._run_checks())

    async def _run_checks(self) -> None:
        while self._is_due:
            self._is_due = False
            for root in self._roots:
                if problem := await _THREADS.run(root.find_problem, owner=root.path):
                    log.warning(
                        "a confined server was ended, because a guard vanished",
                        extra={"server_pid": self._child.pid, "problem": problem},
                    )
                    self._child.kill()
                    return


class _Inotify:
    """The kernel's events about names in folders. If a folder cannot be watched, `works` is False."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = -1
        with contextlib.suppress(AttributeError):  # not on this platform
            self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.works = self.fd >= 0

    def add(self, path: str) -> int:
        watch = self._libc.inotify_add_watch(self.fd, path.encode(), _EVENTS) if self.fd >= 0 else -1
        self.works = self.works and watch >= 0
        return watch

    def remove(self, watch: int) -> None:
        if self.fd >= 0 and watch >= 0:
            self._libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[int]:
        """The watch of each new event. After an overflow of the queue, one of them is -1."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, offset)
            yield watch
            offset += _EVENT.size + length

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
