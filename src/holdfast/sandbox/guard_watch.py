"""End a confined server when one of its guards has vanished, or when it lacks a guard that another server in its root needs.

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
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice

from holdfast.model.confined_folders import RootLocks
from holdfast.model.guarded_names import GUARDED_IF_PRESENT, GUARDED_NAMES, INSTRUCTION_FILES
from holdfast.model.worker_threads import WorkerThreads
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.kept_files import KeptFiles
from holdfast.sandbox.opened_path import Identity, OpenedPath
from holdfast.sandbox.placeholders import PlaceholderVersion, placeholder_version

log = logging.getLogger(__name__)

# IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF, IN_ONLYDIR
_EVENTS = 0x40 | 0x80 | 0x200 | 0x400 | 0x800 | 0x1000000
# `struct inotify_event` without the name: watch, mask, cookie, length of the name
_EVENT = struct.Struct("iIII")
_OVERFLOW = -1  # instead of a watch's number: the kernel has dropped events
_READ_BYTES = 64 * 1024  # about 2,000 events
_PAUSE_SECONDS = 0.02  # between two reads, so that a server that floods its root with events costs little
_CHECK_SECONDS = 1.0
_CHECK_SECONDS_WITHOUT_EVENTS = 0.1  # if not all roots can be watched
_GUARDED = frozenset((*GUARDED_NAMES, *GUARDED_IF_PRESENT, *INSTRUCTION_FILES))
_MAX_LISTED = 20_000  # names of one root that are looked at for new dotfiles
_MAX_REPORTED = 20  # new names in one log line
_THREADS = WorkerThreads("guards", threads=4, per_owner=1)
_KEPT_FILES = KeptFiles()


class GuardedRoot:
    """The guarded names of one root of a running server, as they were when it was started."""

    def __init__(
        self,
        root: OpenedPath,
        locks: RootLocks,
        placeholders: Mapping[str, PlaceholderVersion],
        existing: Collection[OpenedPath],
        owner: str = "",
    ) -> None:
        """`placeholders` and `existing` are the guarded names. The files in `existing` stay open, and count for `owner`, the server's first root."""
        self.path = root.path
        self._locks = locks
        self._config_names = _config_names(root.fd)
        self._placeholders = dict(placeholders)
        self._lock = threading.Lock()
        with ExitStack() as opened:
            _KEPT_FILES.keep(owner or root.path, existing, opened)
            # Not shared: at another path, other file systems may be mounted in the same folder.
            self._root = os.dup(root.fd)
            opened.callback(os.close, self._root)
            self._existing = {name.name: name.identity for name in existing}
            self._opened = opened.pop_all()

    def watch(self, inotify: "_Inotify") -> int:
        """Watch the names in this root. Return the number of the watch; -1 if that is not possible."""
        with self._lock:
            return inotify.add(f"/proc/self/fd/{self._root}") if self._root >= 0 else -1

    @property
    def names(self) -> Collection[str]:
        return (*self._placeholders, *self._existing)

    def check_record(self) -> None:
        """Raise `ServersEndingError` if another server needs a guard that this one lacks. Blocks."""
        self._locks.guards.check()

    def find_problem(self, lookups: "_LookupCache") -> str:
        """What has changed since the start; empty if nothing has. Blocks. `lookups` is shared by all servers that are checked."""
        with self._lock:
            if self._root < 0:
                return ""
            for name, version in self._placeholders.items():
                if lookups.placeholder(self._root, name) != version:
                    return f"{self.path}/{name} was removed or replaced"
            for name, identity in self._existing.items():
                if lookups.identity(self._root, name) != identity:
                    return f"{self.path}/{name} was removed or replaced"
            if not self._locks.guards.is_valid():
                return f"a file that must be read-only has appeared in {self.path}, and another confined server needs it"
            return "" if self._locks.is_held() else "the locks of running servers were removed"

    def report_new_names(self) -> None:
        """Log which dotfiles and settings files are new since the start: the user's programs may load some of them."""
        with self._lock:
            now = _config_names(self._root)
        # New names of `GUARDED_NAMES` are placeholders, or names that the server may create.
        guarded = sorted({name for name, _ in now.guarded - self._config_names.guarded} - {*GUARDED_NAMES})
        dotfiles = (
            sorted(now.dotfiles - self._config_names.dotfiles) if self._config_names.is_complete else []
        )
        if guarded or dotfiles:
            # The guarded names come first: a server could fill the report with any number of other names.
            reported = [*guarded, *dotfiles[: max(0, _MAX_REPORTED - len(guarded))]]
            level = logging.WARNING if guarded else logging.INFO
            extra = {"root": self.path, "names": reported, "number": len(guarded) + len(dotfiles)}
            log.log(
                level,
                "new dotfiles or settings files appeared while a confined server ran; check them",
                extra=extra,
            )
        if not now.is_complete:
            log.warning(
                "a folder in which a confined server ran has too many names, or cannot be listed; check it for new dotfiles and settings files",
                extra={"root": self.path},
            )

    def close(self) -> None:
        with self._lock:
            self._opened.close()
            self._root = -1


class _LookupCache:
    """Caches the look-ups of names during one check, so that each name is looked up once, however many servers run in a root."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[Identity, str], PlaceholderVersion | None] = {}
        self._identities: dict[tuple[Identity, str], Identity | None] = {}

    def placeholder(self, root_fd: int, name: str) -> PlaceholderVersion | None:
        key = _identity(os.fstat(root_fd)), name
        if key not in self._placeholders:
            self._placeholders[key] = placeholder_version(root_fd, name)
        return self._placeholders[key]

    def identity(self, root_fd: int, name: str) -> Identity | None:
        key = _identity(os.fstat(root_fd)), name
        if key not in self._identities:
            try:
                status = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
            except OSError:
                self._identities[key] = None
            else:
                self._identities[key] = _identity(status)
        return self._identities[key]


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConfigNames:
    """The names in a folder that the user's programs may load as settings."""

    guarded: frozenset[tuple[str, str]]
    """The guarded names that exist, each with its target if it is a link. They are looked up one by one, however many names the folder has."""
    dotfiles: frozenset[str]
    """All other names that begin with a dot."""
    is_complete: bool
    """Whether all names of the folder were seen."""


def _config_names(root_fd: int) -> _ConfigNames:
    guarded = frozenset((name, _link_target(root_fd, name)) for name in _GUARDED if _exists(root_fd, name))
    dotfiles: set[str] = set()
    is_complete = False
    with contextlib.suppress(OSError), ExitStack() as opened:
        fd = os.open(f"/proc/self/fd/{root_fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, fd)
        entries = opened.enter_context(os.scandir(fd))
        for entry in islice(entries, _MAX_LISTED):
            if entry.name.startswith("."):
                dotfiles.add(entry.name)
        is_complete = next(entries, None) is None
    return _ConfigNames(
        guarded=guarded,
        dotfiles=frozenset(dotfiles - _GUARDED) if is_complete else frozenset(),
        is_complete=is_complete,
    )


def _exists(folder_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:  # it may exist
        return True
    return True


def _link_target(folder_fd: int, name: str) -> str:
    """Where a link leads; empty for a file or folder."""
    try:
        return os.readlink(name, dir_fd=folder_fd)
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedRoot:
    """One root of one running server, and the inotify watch on it."""

    child: Child
    root: GuardedRoot
    watch: int
    """The number of the watch; -1 if the root cannot be watched."""


class GuardWatch:
    """Watches the roots of the running servers that one host's keeper started, and kills a server if a guard vanishes.

    All servers in a root are checked together: when an event is about one of their guarded names, and at regular intervals.
    """

    def __init__(self) -> None:
        self._roots: dict[str, list[_WatchedRoot]] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._paths_to_check: set[str] = set()
        self._inotify: _Inotify | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._last_full_check = 0.0

    def add(self, child: Child, roots: Collection[GuardedRoot]) -> None:
        """Watch these roots until no process of the server is left. Kill the server if a guard in one of them vanishes."""
        if not roots:
            return
        if self._inotify is None:
            self._inotify = _Inotify()
            self._start_reading()
            self._tick()
        watched = [_WatchedRoot(child, root, root.watch(self._inotify)) for root in roots]
        for each in watched:
            self._roots.setdefault(each.root.path, []).append(each)
            self._check_soon(each.root.path)
        child.on_gone(partial(self._remove, watched))

    def close(self) -> None:
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        if self._inotify is not None:
            if self._inotify.fd >= 0:
                asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None

    def _remove(self, watched: Collection[_WatchedRoot]) -> None:
        for each in watched:
            same_root = self._roots[each.root.path]
            same_root.remove(each)
            if not same_root:
                del self._roots[each.root.path]
        if self._inotify is not None:
            used = {other.watch for same_root in self._roots.values() for other in same_root}
            for watch in {each.watch for each in watched} - used:
                self._inotify.remove(watch)

    def _tick(self) -> None:
        """Check all servers at regular intervals: a file system may report no events, or more than the queue can hold."""
        assert self._inotify is not None
        self._check_all()
        seconds = _CHECK_SECONDS if self._inotify.works else _CHECK_SECONDS_WITHOUT_EVENTS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _start_reading(self) -> None:
        assert self._inotify is not None
        if self._inotify.fd >= 0:
            asyncio.get_running_loop().add_reader(self._inotify.fd, self._read)

    def _read(self) -> None:
        if self._inotify is None:
            return
        changed = self._inotify.read()
        if _OVERFLOW in changed:
            self._check_all()
        for path, watched in self._roots.items():
            if any(
                not names.isdisjoint(("", *each.root.names))
                for each in watched
                if (names := changed.get(each.watch))
            ):
                self._check_soon(path)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify.fd)
        self._pause = loop.call_later(_PAUSE_SECONDS, self._start_reading)

    def _check_all(self) -> None:
        now = time.monotonic()
        # A server can make the queue overflow again and again, so the time between two full checks has a minimum.
        if now < self._last_full_check + _CHECK_SECONDS_WITHOUT_EVENTS / 2:
            return
        self._last_full_check = now
        for path in self._roots:
            self._check_soon(path)

    def _check_soon(self, path: str) -> None:
        self._paths_to_check.add(path)
        if path not in self._checks:
            self._checks[path] = asyncio.get_running_loop().create_task(self._end_unguarded_servers(path))

    async def _end_unguarded_servers(self, path: str) -> None:
        """Kill the servers whose guards in a root have vanished. Check the guards in a thread: a file system may not respond."""
        try:
            while path in self._paths_to_check:
                self._paths_to_check.remove(path)
                watched = tuple(self._roots.get(path, ()))
                if not watched:
                    return
                for each, problem in await _THREADS.run(_find_problems, watched, owner=path):
                    log.warning(
                        "a confined server was ended, because it would run without a guard",
                        extra={"server_pid": each.child.pid, "problem": problem},
                    )
                    each.child.terminate_quickly()
        finally:
            del self._checks[path]


def _find_problems(watched: Collection[_WatchedRoot]) -> list[tuple[_WatchedRoot, str]]:
    lookups = _LookupCache()
    return [(each, problem) for each in watched if (problem := each.root.find_problem(lookups))]


class _Inotify:
    """An inotify instance: the kernel's events about names in folders. `works` is False once a folder could not be watched."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = -1
        with contextlib.suppress(AttributeError):  # this platform has no inotify
            self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.works = self.fd >= 0

    def add(self, path: str) -> int:
        watch = self._libc.inotify_add_watch(self.fd, path.encode(), _EVENTS) if self.fd >= 0 else -1
        self.works = self.works and watch >= 0
        return watch

    def remove(self, watch: int) -> None:
        if self.fd >= 0 and watch >= 0:
            self._libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> dict[int, set[str]]:
        """The names that new events are about, by the number of the watch. An empty name stands for the watched folder itself.

        After an overflow of the queue, there is also the key `_OVERFLOW`.
        """
        names_by_watch: dict[int, set[str]] = {}
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return names_by_watch
        offset = 0
        while offset < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + length
            name = data[offset - length : offset].rstrip(b"\0")
            names_by_watch.setdefault(watch, set()).add(os.fsdecode(name))
        return names_by_watch

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
