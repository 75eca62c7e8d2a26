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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from holdfast.model.guarded_names import PACKAGE_FOLDERS
from holdfast.model.mounts import is_within
from holdfast.model.real_path import StepBudget, TooMuchWorkError, follow_links

# What an entry raises that has just been removed or replaced.
_REPLACED = FileNotFoundError, NotADirectoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What a search may cost. What goes beyond counts as linked."""

    entries: int
    """In one folder of packages; and in all folders that links in it lead to."""
    seconds: float
    """For all roots of a server."""


AT_START = SearchLimits(entries=50_000, seconds=3.0)
WHILE_RUNNING = SearchLimits(entries=200_000, seconds=30.0)
"""A higher limit: the server itself may install many packages, and a busy machine must not end it."""


def find_linked_packages(
    roots: Collection[str], not_searched: Collection[str], limits: SearchLimits
) -> Mapping[str, frozenset[str]]:
    """The names directly in each root that a confined server must not change; `.` for the whole root. Blocks.

    `not_searched` are the paths of folders that it may change by a grant, or that are read-only for it already. A link in the place
    of a folder of packages, or in one, is followed, because a package manager follows it, too. The server could make it lead elsewhere
    afterwards, so then the whole root counts, and the root that the link leads to.
    """
    found: dict[str, set[str]] = {}
    deadline = time.monotonic() + limits.seconds
    for root in roots:
        for each, name in _find(root, roots, not_searched, _Search(roots, limits.entries, deadline)):
            found.setdefault(each, set()).add(name)
    return {root: frozenset(names) for root, names in found.items()}


def _find(
    root: str, roots: Collection[str], not_searched: Collection[str], search: "_Search"
) -> Iterator[tuple[str, str]]:
    for name in PACKAGE_FOLDERS:
        path = f"{root}/{name}"
        mode = 0 if path in not_searched else _mode(path)
        if stat.S_ISLNK(mode):
            if led_to := _follow(roots, path):
                yield from ((each, ".") for each in {root, *led_to})
        elif stat.S_ISDIR(mode):
            if search.finds_links_in(path):
                yield root, name
            if led_to := search.follow_links():
                yield from ((each, ".") for each in {root, *led_to})


class _Search:
    """Searches folders of packages in one root."""

    def __init__(self, roots: Collection[str], entries: int, deadline: float) -> None:
        self._roots = roots
        self._entries = entries
        self._deadline = deadline
        self._elsewhere: set[str] = set()
        """The folders of the roots that links lead to, but for folders of packages."""

    def finds_links_in(self, folder: str) -> bool:
        """Whether a file below a folder of packages has a second name, or may have one."""
        self._elsewhere.clear()
        return self._has_links(folder, self._new_budget())

    def follow_links(self) -> Collection[str]:
        """The roots with a folder that a link leads to, and of which that is true. Call this after `finds_links_in`.

        Links may lead to packages that are developed in a root. What is installed for such a package is left out: the limit
        that packages are looked for only directly in a root.
        """
        budget = self._new_budget()
        found: set[str] = set()
        searched: set[str] = set()
        while pending := self._elsewhere - searched:
            searched |= pending
            for folder in pending:
                if self._has_links(folder, budget, left_out=PACKAGE_FOLDERS):
                    found.update(_roots_of(self._roots, folder))
        return found

    def _new_budget(self) -> StepBudget:
        return StepBudget(self._entries, self._deadline - time.monotonic())

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
        lexical = os.path.normpath(os.path.join(os.path.dirname(link), target))  # noqa: PTH118, PTH120
        if any(_is_in_packages(root, lexical) for root in self._roots):
            return
        real = follow_links(link, budget).real
        if real is not None and _roots_of(self._roots, real):
            self._elsewhere.add(real)


def _has_second_name(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink > 1
    except _REPLACED:
        return False


def _follow(roots: Collection[str], link: str) -> Collection[str]:
    """The roots that a link leads into, but not into a folder of packages; all roots if that cannot be found out."""
    try:
        real = follow_links(link, StepBudget()).real
    except TooMuchWorkError:
        return roots
    return _roots_of(roots, real) if real is not None else ()


def _roots_of(roots: Collection[str], path: str) -> Collection[str]:
    return [root for root in roots if is_within(path, root) and not _is_in_packages(root, path)]


def _is_in_packages(root: str, path: str) -> bool:
    """Whether a path lies in one of the folders of packages, each of which is searched itself."""
    return is_within(path, root) and path.removeprefix(f"{root}/").partition("/")[0] in PACKAGE_FOLDERS


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0
