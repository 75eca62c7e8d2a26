"""Remember the roots of all confined servers: of this host, of earlier hosts, and of other hosts that run now."""

import os
import threading
import weakref
from pathlib import Path

from holdfast.model.changeable_roots import ChangeableRoots
from holdfast.model.confined_folders import running_roots
from holdfast.sandbox.opened_path import FolderSet, Identity, OpenedPath

_MAX_OPEN = 256


class KnownRoots:
    """Folders in which a server may have left links. No link or script in them decides what is mounted for another server.

    Each folder stays open, so that the file system cannot use its inode number for another folder, which would then count as a
    root. A deleted folder is closed and forgotten. Once `_MAX_OPEN` folders are open, only device and inode of a further folder are
    remembered. The same is true of a folder that is not on the mount of `/`: while it is open, its file system could not be unmounted.
    """

    def __init__(self, changeable_roots: ChangeableRoots | None = None) -> None:
        """`changeable_roots` stores the roots for later hosts; None if they are not stored."""
        self._stored = changeable_roots
        self._open: dict[Identity, int] = {}
        self._not_open: set[Identity] = set()
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._open)

    def add(self, root: OpenedPath) -> None:
        """Remember this root. Raise if it cannot be stored."""
        if self._stored is not None:
            self._stored.add([root.path])
        with self._lock:
            if root.identity in self._open:
                return
            self._forget_deleted()
            if len(self._open) < _MAX_OPEN and is_on_main_mount(root.fd):
                self._open[root.identity] = os.dup(root.fd)
                self._not_open.discard(root.identity)
            else:
                self._not_open.add(root.identity)

    def folders(self) -> FolderSet:
        """Each root of this host and of earlier ones, and each folder in which a server of another host runs now."""
        with self._lock:
            self._forget_deleted()
            identities = frozenset((*self._open, *self._not_open, *running_roots()))
        return FolderSet(
            identities=identities, paths=self._stored.paths() if self._stored is not None else ()
        )

    def _forget_deleted(self) -> None:
        for identity, descriptor in [*self._open.items()]:
            if not os.fstat(descriptor).st_nlink:
                del self._open[identity]
                os.close(descriptor)


def is_on_main_mount(descriptor: int) -> bool:
    """Whether a folder is on the mount of `/`, which is never unmounted."""
    main = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        return _mount_id(descriptor) == _mount_id(main) != ""
    finally:
        os.close(main)


def _mount_id(descriptor: int) -> str:
    try:
        fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").split()
    except OSError:
        return ""
    return fields[fields.index("mnt_id:") + 1] if "mnt_id:" in fields else ""


def _close_all(descriptors: dict[Identity, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])
