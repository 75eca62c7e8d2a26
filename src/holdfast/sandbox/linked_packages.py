"""Find the folders of packages in a root that share files with a store of the user, by hard links.

uv, pnpm, bun, conda and pixi fill a project's folder of packages with hard links to their store. A change of such a file also
changes the store, and so the packages of every other project, which the user's programs run.

All files of these folders are looked at, at each start: a server can put any number of other files before the linked ones. A
folder that is too large for that, or that cannot be read, counts as linked.
"""

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterator

from holdfast.model.guarded_names import PACKAGE_FOLDERS
from holdfast.model.mounts import is_within
from holdfast.model.real_path import StepBudget, TooMuchWorkError, follow_links

_MAX_ENTRIES = 50_000  # in one folder of packages; and in all folders that links in it lead to
_MAX_SECONDS = 3.0  # for all folders of packages in a root
# What an entry raises that has just been removed or replaced.
_REPLACED = FileNotFoundError, NotADirectoryError


def find_linked_packages(root: str, writable: Collection[str] = ()) -> frozenset[str]:
    """The names directly in a root that a confined server must not change; `.` for the whole root. Blocks.

    `writable` are those that it may change. A link in the place of such a folder, or in it, is followed, because a package manager
    follows it, too. The server could make it lead elsewhere afterwards, so then the whole root counts.
    """
    return frozenset(_find(root, writable))


def _find(root: str, writable: Collection[str]) -> Iterator[str]:
    deadline = time.monotonic() + _MAX_SECONDS
    for name in PACKAGE_FOLDERS:
        path = f"{root}/{name}"
        mode = 0 if name in writable else _mode(path)
        if stat.S_ISLNK(mode):
            if _leads_into(root, path):
                yield "."
        elif stat.S_ISDIR(mode):
            search = _Search(root, deadline)
            if search.finds_links_in(path):
                yield name
            if search.finds_links_elsewhere():
                yield "."


class _Search:
    """The search of one folder of packages."""

    def __init__(self, root: str, deadline: float) -> None:
        self._root = root
        self._deadline = deadline
        self._elsewhere: set[str] = set()
        """The other folders of the root that links lead to."""

    def finds_links_in(self, folder: str) -> bool:
        """Whether a file below the folder of packages has a second name, or may have one."""
        return self._has_links(folder, self._new_budget())

    def finds_links_elsewhere(self) -> bool:
        """Whether that is true of a folder that a link leads to. Call this after `finds_links_in`.

        Links may lead to packages that are developed in the root. What is installed for such a package is left out: the limit
        that packages are looked for only directly in a root.
        """
        budget = self._new_budget()
        searched: set[str] = set()
        while pending := self._elsewhere - searched:
            searched |= pending
            if any(self._has_links(folder, budget, left_out=PACKAGE_FOLDERS) for folder in pending):
                return True
        return False

    def _new_budget(self) -> StepBudget:
        return StepBudget(_MAX_ENTRIES, self._deadline - time.monotonic())

    def _has_links(self, folder: str, budget: StepBudget, left_out: Collection[str] = ()) -> bool:
        found, pending = False, [folder]
        try:
            while pending:
                with contextlib.suppress(*_REPLACED), os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        budget.spend()
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in left_out:
                                pending.append(entry.path)
                        elif entry.is_symlink():
                            self._note_link(entry.path, budget)
                        elif not found:
                            found = _has_second_name(entry)
        except OSError:  # a folder is not readable, or there is too much
            return True
        return found

    def _note_link(self, link: str, budget: StepBudget) -> None:
        try:
            target = os.readlink(link)  # noqa: PTH115 - a name, not a path yet
        except OSError:  # it has just been removed or replaced
            return
        # Most links lead to the same folder of packages. The link is in a real folder, so `..` leads to the folder above.
        if not _is_in_packages(self._root, os.path.normpath(os.path.join(os.path.dirname(link), target))):  # noqa: PTH118, PTH120
            real = follow_links(link, budget).real
            if real is not None and is_within(real, self._root) and not _is_in_packages(self._root, real):
                self._elsewhere.add(real)


def _has_second_name(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink > 1
    except _REPLACED:
        return False


def _leads_into(root: str, link: str) -> bool:
    """Whether a link leads into the root, but not into a folder of packages; True if that cannot be found out."""
    try:
        real = follow_links(link, StepBudget()).real
    except TooMuchWorkError:
        return True
    return real is not None and is_within(real, root) and not _is_in_packages(root, real)


def _is_in_packages(root: str, path: str) -> bool:
    """Whether a path lies in one of the folders of packages, each of which is searched itself."""
    return is_within(path, root) and path.removeprefix(f"{root}/").partition("/")[0] in PACKAGE_FOLDERS


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0
