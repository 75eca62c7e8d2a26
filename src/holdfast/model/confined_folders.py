"""Finds and locks the folders in which confined servers run: those of this host, and those of all Holdfast processes of the user.

This host counts its own servers. It finds the servers of other processes through lock files, in a private folder that no
confined server sees. A lock file is named after the device and inode of the folder in which a server runs. The lock belongs to
an open file, so the kernel releases it when its process dies.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement

# The kinds of locks on a folder: a server runs in the folder, a server that runs in the folder can change it, or a server is being
# set up in a folder below.
_RUNS, _WRITES, _SETUP_BELOW = "runs", "writes", "below"
# A lock on a record: which names in the folder the server guards. It is renamed to the second kind when the server must end.
_GUARDS, _ENDING = "guards", "ending"
_LOCK_SECONDS = 5.0  # how long to wait for the locks of other processes
_END_SECONDS = 0.5  # a session that was just closed may still be ending its servers
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class ServersEndingError(HoldfastError):
    """A server cannot be started yet: other servers in its root lack guards that it needs, and are being ended."""


class ConfinedFolders:
    """The confined servers that this host runs, and their roots. A server can replace any path below its roots with a symbolic link, at any time."""

    def __init__(self) -> None:
        self._roots: Counter[str] = Counter()
        self._running: dict[object, Confinement] = {}

    @property
    def confinements(self) -> tuple[Confinement, ...]:
        """How each running server is confined, as it was when the server was started."""
        return tuple(self._running.values())

    @contextmanager
    def add_while_running(self, confinement: Confinement | None) -> Iterator[None]:
        """Keep a server's confinement, and the roots that it can change, during the block, in which the server runs. None is for a server that is not confined."""
        if confinement is None:
            yield
            return
        key, roots = object(), _changeable_roots(confinement)
        self._running[key] = confinement
        self._roots.update(roots)
        try:
            yield
        finally:
            del self._running[key]
            for root in roots:
                self._roots[root] -= 1
                if not self._roots[root]:
                    del self._roots[root]

    def is_changeable(self, path: str) -> bool:
        """Whether a confined server of this host can write to a folder above this real path."""
        return any(str(parent) in self._roots for parent in PurePosixPath(path).parents)


def _changeable_roots(confinement: Confinement) -> tuple[str, ...]:
    """The roots in which a server can change something."""
    if confinement.writable:
        return confinement.roots
    return tuple(
        root
        for root in confinement.roots
        if not any(is_within(path, root) or is_within(root, path) for path in confinement.read_only)
        and not any(is_within(root, path) for path in confinement.executed)
    )


def can_confined_server_change(path: str) -> bool:
    """Whether a confined server of any process of this user runs in this folder, or in one above it, and can change what is there.

    Such a server can replace anything below its folder with a link, at any time.
    """
    names: set[str] = set()
    for step in (PurePath(path), *PurePath(path).parents):
        with contextlib.suppress(OSError):
            names.add(_lock_name(_WRITES, os.stat(step)))  # noqa: PTH116 - a pure path
    folder = locks_folder()
    if not folder.is_dir():  # no server has been started yet
        return False
    try:
        with _lock_folder(folder) as directory:
            return any(_is_locked(directory, name) for name in names)
    except HoldfastError:  # the locks cannot be read, so assume that such a server runs
        return True


def running_roots() -> frozenset[tuple[int, int]]:
    """The device and inode of each folder in which a confined server of this user runs."""
    folder = locks_folder()
    if not folder.is_dir():  # no server has been started yet
        return frozenset()
    with _lock_folder(folder) as directory:
        names = [name for name in os.listdir(directory) if _is_locked(directory, name)]  # noqa: PTH208 - not a path
    numbers = (name.removesuffix(f".{_RUNS}").split("-") for name in names if name.endswith(f".{_RUNS}"))
    return frozenset((int(device, 16), int(inode, 16)) for device, inode in numbers)


def running_below(path: str) -> frozenset[str]:
    """The folders below this real path in which a confined server of this user runs, by the paths that they had at its start.

    Blocks for a moment if there is such a server, because it may be ending.
    """
    begun = time.monotonic()
    while (found := _find_below(path)) and time.monotonic() < begun + _END_SECONDS:
        time.sleep(0.02)
    return found


def _find_below(path: str) -> frozenset[str]:
    folder = locks_folder()
    if not folder.is_dir():  # no server has been started yet
        return frozenset()
    with _lock_folder(folder) as directory:
        names = [name for name in os.listdir(directory) if name.endswith(f".{_RUNS}")]  # noqa: PTH208 - not a path
        roots = [
            root for name in names if _is_locked(directory, name) for root in _read_roots(directory, name)
        ]
    return frozenset(root for root in roots if root != path and is_within(root, path))


def locks_folder() -> Path:
    """The folder of the lock files. It does not depend on environment variables, so all processes of a user find the same one."""
    uid = os.geteuid()
    run = Path("/run") if uid == 0 else Path("/run/user") / str(uid)
    if _is_own(run, uid):
        return run / "holdfast"
    # /tmp is the last choice, because any user can create a folder of this name there first.
    with contextlib.suppress(KeyError):
        home = Path(pwd.getpwuid(uid).pw_dir)
        if home.is_absolute() and home != Path("/") and _is_own(home, uid):
            return home.resolve() / ".local" / "share" / "holdfast" / "sandbox-locks"
    return Path("/tmp") / f"holdfast-{uid}"


def _is_own(folder: Path, uid: int) -> bool:
    try:
        return folder.stat().st_uid == uid and os.access(folder, os.W_OK)
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RootLocks:
    """The locks of one root of a server."""

    running_lock: ExitStack
    """Holds the lock that says that a server runs in this root."""
    writing_lock: ExitStack
    """Holds the lock that says that a server can change this root. Closed if the root is read-only for it."""
    setup_locks: ExitStack
    """Holds the locks that keep other servers from starting in folders above the root."""
    is_last: Callable[[], bool]
    """Whether no other server runs in this root. If it returns True, no server can start there until `running_lock` is closed."""
    is_held: Callable[[], bool]
    """Whether other processes still see `running_lock` and `writing_lock`. False once a lock file, or the folder of the locks, was removed."""
    guards: "GuardRecord"
    """Which names in this root the server guards."""


def lock_root(path: str, steps: Sequence[os.stat_result]) -> RootLocks:
    """Lock a root in which a confined server starts. `steps` has the status of the root, followed by that of each folder above it.

    A server in a folder above the root could replace files in the root while they are being mounted. So if such a server
    runs, the new server is refused; and while the new server is being set up, no server is started in a folder above its root.
    """
    root, *parents = steps
    begun = time.monotonic()
    folder = locks_folder()
    while True:
        with (
            ExitStack() as running,
            ExitStack() as writing,
            ExitStack() as setup,
            _lock_folder(folder) as directory,
        ):
            runs_above = any(_is_locked(directory, _lock_name(_RUNS, parent)) for parent in parents)
            if runs_above and time.monotonic() > begun + _END_SECONDS:
                raise HoldfastError(
                    codes.SPAWN_FAILED,
                    f"{path!r} cannot be used by a confined server: another confined server runs in a folder above it, and"
                    " could change this folder during the start. Close the session in that folder, then try again.",
                )
            if not runs_above and not _is_locked(directory, _lock_name(_SETUP_BELOW, root)):
                name = _lock_name(_RUNS, root)
                fd = _take_shared_lock(folder, directory, name, running)
                if fd is not None:
                    _write_root(fd, path)
                    writes = _lock_name(_WRITES, root)
                    writes_fd = _take_shared_lock(folder, directory, writes, writing)
                    for parent in parents:
                        _take_shared_lock(folder, directory, _lock_name(_SETUP_BELOW, parent), setup)
                    held_writing = writing.pop_all()
                    return RootLocks(
                        running_lock=running.pop_all(),
                        writing_lock=held_writing,
                        setup_locks=setup.pop_all(),
                        is_last=partial(_is_last, folder, name, fd),
                        is_held=partial(_are_held, folder, {name: fd, writes: writes_fd}),
                        guards=GuardRecord(path, folder, root, held_writing),
                    )
        if time.monotonic() > begun + _LOCK_SECONDS:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"{path!r} cannot be used by a confined server yet: another one is being started or cleaned up in this"
                " folder or below it. Try again.",
            )
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class _Guards:
    """What a record says about a server."""

    guarded: frozenset[str]
    """The names that are read-only for it."""
    granted: frozenset[str]
    """The names that the user lets it change; `.` for all."""

    def lack(self, names: Iterable[str]) -> bool:
        """Whether the server could remove one of these names without a grant."""
        return "." not in self.granted and not self.guarded.union(self.granted).issuperset(names)


class GuardRecord:
    """Tells all Holdfast processes of the user which names in a root a running server guards.

    If the guards of two servers in one root differ, one of them can remove a name that only the other one guards. The other one
    would have to be ended. So all servers in a root guard the same names, but for grants: a server also guards what the servers
    that run already guard. If a name has appeared since those were started, they are ended before the new server is started.
    """

    def __init__(self, root: str, folder: Path, status: os.stat_result, writing: ExitStack) -> None:
        """`folder` is the folder of the locks; `writing` holds the lock on the record."""
        self._root = root
        self._folder = folder
        self._guards_prefix = f"{_lock_name(_GUARDS, status)}-"
        self._ending_prefix = f"{_lock_name(_ENDING, status)}-"
        self._writing = writing
        self._locked: dict[str, int | None] = {}

    def is_valid(self) -> bool:
        """False once another server needs a guard that this server lacks."""
        return _are_held(self._folder, self._locked)

    def check(self) -> None:
        """Raise `ServersEndingError` once another server needs a guard that this server lacks."""
        if not self.is_valid():
            raise self._must_wait()

    def guarded_by_others(self) -> frozenset[str]:
        """The names that running servers in this root guard."""
        with _lock_folder(self._folder) as directory:
            return _all_guarded(self._read_others(directory).values())

    def write(self, guarded: Iterable[str], granted: Iterable[str], known: Iterable[str]) -> None:
        """Record what this server guards, and what it may change. `known` is what `guarded_by_others` has returned.

        Raise `ServersEndingError` if another server lacks one of the guards, and let that server be ended. Also raise it if another
        server has been started since `guarded_by_others`, with guards that this server lacks. In both cases the caller starts again.
        """
        mine = _Guards(frozenset(guarded), frozenset(granted))
        text = json.dumps([sorted(mine.guarded), sorted(mine.granted)]).encode()
        name = f"{self._guards_prefix}{_digest(text)}"
        with _lock_folder(self._folder) as directory:
            others = self._read_others(directory)
            lacking = [other for other, guards in others.items() if guards.lack(mine.guarded)]
            for other in lacking:
                ending = self._ending_name(os.stat(other, dir_fd=directory, follow_symlinks=False))
                os.rename(other, ending, src_dir_fd=directory, dst_dir_fd=directory)
            new = _all_guarded(others.values()).difference(known)
            if lacking or self._are_others_ending(directory) or mine.lack(new):
                raise self._must_wait()
            fd = _take_shared_lock(self._folder, directory, name, self._writing)
            assert fd is not None  # such locks are never exclusive
            self._writing.callback(_remove_if_last, self._folder, self._ending_name(os.fstat(fd)), fd)
            os.pwrite(fd, text, 0)
            self._locked[name] = fd

    def _must_wait(self) -> ServersEndingError:
        return ServersEndingError(
            codes.SPAWN_FAILED,
            f"{self._root!r} cannot be used by a confined server yet: a file that must be read-only has appeared in it, and"
            " the confined servers that were started before are still being ended. Try again.",
        )

    def _ending_name(self, record: os.stat_result) -> str:
        return f"{self._ending_prefix}{record.st_ino:x}"

    def _read_others(self, directory: int) -> dict[str, _Guards]:
        """The records of running servers, by the names of their files."""
        names = [name for name in os.listdir(directory) if name.startswith(self._guards_prefix)]
        return {name: _read_guards(directory, name) for name in names if _is_locked(directory, name)}

    def _are_others_ending(self, directory: int) -> bool:
        is_any = False
        for name in os.listdir(directory):
            if name.startswith(self._ending_prefix):
                if _is_locked(directory, name):
                    is_any = True
                else:
                    os.unlink(name, dir_fd=directory)
        return is_any


def _all_guarded(servers: Iterable[_Guards]) -> frozenset[str]:
    return frozenset(name for server in servers for name in server.guarded)


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def _read_guards(directory: int, name: str) -> _Guards:
    """Read a record. If it is incomplete, as on a full disk, the server counts as one without guards."""
    fd = os.open(name, _FLAGS, dir_fd=directory)
    try:
        text = os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)
    if not name.endswith(f"-{_digest(text)}"):
        return _Guards(frozenset(), frozenset())
    guarded, granted = json.loads(text)
    return _Guards(frozenset(guarded), frozenset(granted))


@contextmanager
def _lock_folder(folder: Path) -> Iterator[int]:
    """Let only one process at a time check or change the locks. Yields a descriptor of their folder."""
    with ExitStack() as opened:
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, directory)
            status = os.fstat(directory)
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            raise _unusable(folder, f"{reason}. Check the disk and the permissions, or remove it") from None
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise _unusable(folder, "it belongs to another user, or other users may enter it. Remove it")
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _lock(directory, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise _unusable(folder, "another process has locked it. Try again")
            time.sleep(0.001)
        yield directory


def _unusable(folder: Path, problem: str) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"Confined servers cannot be started: the folder of their locks, {str(folder)!r}, cannot be used: {problem}.",
    )


def _lock_name(kind: str, folder: os.stat_result) -> str:
    return f"{folder.st_dev:x}-{folder.st_ino:x}.{kind}"


def _is_locked(directory: int, name: str) -> bool:
    try:
        fd = os.open(name, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        return not _lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def _take_shared_lock(folder: Path, directory: int, name: str, holder: ExitStack) -> int | None:
    """Take a shared lock until `holder` is closed. None if another process holds it exclusively."""
    fd = os.open(name, _FLAGS | os.O_CREAT, 0o600, dir_fd=directory)
    if not _lock(fd, fcntl.LOCK_SH):
        os.close(fd)
        return None
    holder.callback(_release, folder, name, fd)
    return fd


def _write_root(fd: int, path: str) -> None:
    """Add a path to the paths of the folder that this lock is for. A folder has several if it is mounted at several."""
    if path not in _paths(fd):
        os.pwrite(fd, os.fsencode(path) + b"\0", os.fstat(fd).st_size)


def _read_roots(directory: int, name: str) -> Sequence[str]:
    fd = os.open(name, _FLAGS, dir_fd=directory)
    try:
        return _paths(fd)
    finally:
        os.close(fd)


def _paths(fd: int) -> Sequence[str]:
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    return [os.fsdecode(path) for path in text.split(b"\0") if path]


def _is_last(folder: Path, name: str, fd: int) -> bool:
    with _lock_folder(folder):
        return _is_held(folder, name, fd) and _lock(fd, fcntl.LOCK_EX)


def _are_held(folder: Path, locks: Mapping[str, int | None]) -> bool:
    return all(fd is not None and _is_held(folder, name, fd) for name, fd in locks.items())


def _is_held(folder: Path, name: str, fd: int) -> bool:
    try:
        return os.path.samestat((folder / name).stat(follow_symlinks=False), os.fstat(fd))
    except OSError:
        return False


def _release(folder: Path, name: str, fd: int) -> None:
    try:
        _remove_if_last(folder, name, fd)
    finally:
        os.close(fd)


def _remove_if_last(folder: Path, name: str, fd: int) -> None:
    """Remove a lock file if no other process holds a lock on it."""
    with contextlib.suppress(HoldfastError), _lock_folder(folder) as directory:
        if _is_held(folder, name, fd) and _lock(fd, fcntl.LOCK_EX):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
