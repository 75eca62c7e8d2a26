"""Find out which names in the roots of a confined server, or of a sandboxed session's file tools, must not be changed.

Such a name contains what other programs execute: Holdfast's own code, the target of a link in a guarded folder
(`.git/hooks/pre-commit` may be a link to `tools/pre-commit`), the repository that a `.git` file names, or a file that a link
in the user's home leads to (`~/.bashrc` may be a link to `dotfiles/bashrc`).
"""

import errno
import logging
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from holdfast.model.guarded_names import GUARDED_IF_PRESENT, GUARDED_NAMES
from holdfast.model.mounts import MountPoint, is_within, read_mounts, with_bind_mounts
from holdfast.model.real_path import FollowedPath, StepBudget, TooMuchWorkError, follow_links
from holdfast.model.untrusted_file import UnusableFileError, read_untrusted_file
from holdfast.sandbox.own_code import OWN_CODE

log = logging.getLogger(__name__)

_MAX_FOLDER_ENTRIES = 2000  # a guarded folder with more entries counts as too much to check
# For all paths that are followed at one start of a server, or at one write of the file tools.
_MAX_STEPS = 10_000
_STEPS_PER_LINK = 20  # so that there can be at most 500 links
_MAX_NAMES = 16  # names in one root: each is a mount, and needs a descriptor while the server runs
_GIT_FILE_BYTES = 8192


def find_read_only_names(
    roots: Sequence[str], executed: Iterable[str] = OWN_CODE, writable: Collection[str] = ()
) -> Mapping[str, frozenset[str]]:
    """The names directly in each root that must not be changed, besides those of `model/guarded_names.py`; `.` for the whole root. Blocks.

    `executed` is what the host executes or imports; `writable` are the guarded names that the server may change. If there is
    too much to check, or to mount, whole roots are read-only.
    """
    try:
        linked = [*_find_linked(roots, writable)]
    except TooMuchWorkError as error:
        reason = f"it would take too long to find out where its links lead ({error.strerror})"
        return {root: _mark_whole_root(root, reason, (*GUARDED_NAMES, *GUARDED_IF_PRESENT)) for root in roots}
    mounts = read_mounts()
    real = [path.real for path in linked if path.real]
    targets = (*_cached_bind_mounts(tuple(executed), mounts), *with_bind_mounts(real, mounts))
    # Unlike `targets`, these do not count if they contain the root: a server can replace what is in its root, not the root.
    replaceable = with_bind_mounts(
        (*(step for path in linked for step in path.passed), *_home_targets()), mounts
    )
    names_by_root: dict[str, frozenset[str]] = {}
    for root in roots:
        names = top_level_names(
            root, (*targets, *(path for path in replaceable if not is_within(root, path)))
        )
        if len(names) > _MAX_NAMES:
            names = _mark_whole_root(root, "links lead to too many names in it", names)
        names_by_root[root] = names
    return names_by_root


def top_level_names(root: str, paths: Iterable[str]) -> frozenset[str]:
    """The names directly in a root that contain one of the paths, or are one; `.` if a path contains the root, or is it."""
    return frozenset(
        "." if is_within(root, path) else path.removeprefix(root.rstrip("/") + "/").partition("/")[0]
        for path in paths
        if is_within(root, path) or is_within(path, root)
    )


@lru_cache(maxsize=4)
def _cached_bind_mounts(executed: tuple[str, ...], mounts: tuple[MountPoint, ...]) -> tuple[str, ...]:
    return with_bind_mounts(executed, mounts)


def _mark_whole_root(root: str, reason: str, names: Iterable[str]) -> frozenset[str]:
    """Log the reason, and return `.`, which makes the whole root read-only, together with `names`.

    Links may lead to `names`: if one of them is also in a server's `writable`, `guard_roots` refuses the server.
    """
    log.warning("a folder is read-only for confined programs", extra={"root": root, "reason": reason})
    return frozenset((".", *names))


def _find_linked(roots: Iterable[str], writable: Collection[str]) -> Iterator[FollowedPath]:
    """Where the links in the guarded folders of these roots lead, and the repositories that their `.git` files name."""
    budget = StepBudget(_MAX_STEPS)
    names = [name for name in (*GUARDED_NAMES, *GUARDED_IF_PRESENT) if name not in writable]
    for root in roots:
        folders: list[str] = []
        for path in (f"{root}/{name}" for name in names):
            mode = _mode(path)
            if stat.S_ISLNK(mode):
                yield follow_links(path, budget)
            if mode and not stat.S_ISREG(mode):
                folders.append(path)
        if ".git" in names:
            for repository in _find_repositories(f"{root}/.git", budget):
                folders += [repository.real] if repository.real else []
                # If a repository contains the root, the server cannot reach the rest of the repository.
                is_around = repository.real != root and is_within(root, repository.real or "")
                yield replace(repository, real=None) if is_around else repository
        for folder in dict.fromkeys(folders):
            for link in (*_find_links(folder, budget), *_find_links(f"{folder}/hooks", budget)):
                yield follow_links(link, budget)


def _mode(path: str) -> int:
    """The mode of a file, folder or link; 0 if there is none."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _find_links(folder: str, budget: StepBudget) -> list[str]:
    """The paths of the symbolic links directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            seen = list(islice(entries, _MAX_FOLDER_ENTRIES + 1))
    except OSError:  # missing, or no folder
        return []
    # For too many entries, spend more than the whole budget, which raises `TooMuchWorkError`.
    budget.spend(len(seen) if len(seen) <= _MAX_FOLDER_ENTRIES else _MAX_STEPS + 1)
    links = [entry.path for entry in seen if entry.is_symlink()]
    budget.spend(len(links) * _STEPS_PER_LINK)
    return links


def _find_repositories(git: str, budget: StepBudget) -> Iterator[FollowedPath]:
    """The repository that a `.git` file names, and those that the `commondir` files of repositories name."""
    repositories = [git]
    for named in _read_paths(git, "gitdir:"):
        followed = follow_links(os.path.join(os.path.dirname(git), named), budget)  # noqa: PTH118, PTH120 - not paths yet
        yield followed
        repositories += [followed.real] if followed.real else []
    for repository in repositories:
        for named in _read_paths(f"{repository}/commondir"):
            yield follow_links(os.path.join(repository, named), budget)  # noqa: PTH118 - not a path yet


def _read_paths(file: str, prefix: str = "") -> Iterable[str]:
    """The path in a `.git` or `commondir` file, with and without the spaces around it; empty if the file contains no path.

    Git's implementations differ in whether they remove the spaces.
    """
    try:
        text = os.fsdecode(read_untrusted_file(file, limit=_GIT_FILE_BYTES))
    except UnusableFileError as error:
        if error.errno == errno.EFBIG:
            raise TooMuchWorkError(error.errno, error.strerror, file) from None
        return ()
    except OSError:
        return ()
    named = text.removeprefix(prefix).rstrip("\r\n").removeprefix(" " if prefix else "")
    if not text.startswith(prefix) or not named.strip() or "\0" in named:
        return ()
    return dict.fromkeys((named, named.strip()))


def _home_targets() -> Iterator[str]:
    """Where the links in the user's home lead: those that begin with a dot, and those in `~/.config`."""
    try:
        home = str(Path.home())
    except RuntimeError:  # the user has no home
        return
    budget = StepBudget(_MAX_STEPS)
    try:
        for link in (*_find_links(home, budget), *_find_links(f"{home}/.config", budget)):
            if link.startswith((f"{home}/.", f"{home}/.config/")):
                followed = follow_links(link, budget)
                yield from followed.passed
                if followed.real:
                    yield followed.real
    except (
        TooMuchWorkError
    ) as error:  # the home is not an attack, just large: leave the rest of its links unguarded
        log.warning(
            "not all links in the home folder were followed: files that the others lead to can be changed",
            extra={"folder": home, "reason": error.strerror},
        )
