"""Keep the guarded files of running servers open, so that no new file gets an inode of theirs.

Each file is open once in this process, however many servers guard it. A server decides how many guarded names are in its roots, so
the files of all roots together take at most a third of this process's descriptors, and no root can take the rest of them.
"""

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import ExitStack

from holdfast.model import codes
from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.opened_path import Identity, OpenedPath


class KeptFiles:
    """Open files, by device and inode."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fds: dict[Identity, int] = {}
        self._users: Counter[Identity] = Counter()
        self._identities: dict[str, Counter[Identity]] = {}

    def keep(self, owner: str, files: Iterable[OpenedPath], resources: ExitStack) -> None:
        """Keep these files open until `resources` is closed. Raise if the owner, a root, would keep more files than are left for others."""
        wanted = {file.identity: file.fd for file in files}
        if not wanted:
            return
        with self._lock:
            self._check(owner, wanted)
            new: dict[Identity, int] = {}
            try:
                for identity in wanted.keys() - self._fds.keys():
                    new[identity] = os.dup(wanted[identity])
            except OSError:
                for fd in new.values():
                    os.close(fd)
                raise
            self._fds |= new
            self._users.update(wanted.keys())
            self._identities.setdefault(owner, Counter()).update(wanted.keys())
        resources.callback(self._release, owner, wanted.keys())

    def _check(self, owner: str, wanted: Collection[Identity]) -> None:
        new = set(wanted) - self._fds.keys()
        own = self._identities.get(owner, Counter[Identity]()).keys() | set(wanted)
        if new and len(own) > descriptor_limit() // 3 - len(self._fds) - len(new):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"A confined server cannot be started in {owner!r}: its folders contain {len(own)} files that must be read-only and"
                " that Holdfast would have to keep open. That is too many for the limit of open files. Remove some of these files, close"
                " other sessions, or raise the limit (ulimit -n).",
            )

    def _release(self, owner: str, identities: Collection[Identity]) -> None:
        with self._lock:
            own = self._identities[owner]
            own.subtract(identities)
            self._identities[owner] = +own
            if not self._identities[owner]:
                del self._identities[owner]
            for identity in identities:
                self._users[identity] -= 1
                if not self._users[identity]:
                    del self._users[identity]
                    os.close(self._fds.pop(identity))
