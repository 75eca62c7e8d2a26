"""Guard names in the roots of a confined server: it may not change files that the user's own programs load or execute.

Each guarded name is mounted read-only on itself. Only names directly in a root are guarded: bubblewrap mounts by path, and
another server could replace a folder on the path of a deeper name.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from holdfast.model import codes
from holdfast.model.confined_folders import lock_root
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within, read_mounts, with_bind_mounts
from holdfast.model.process import GUARDED_IF_PRESENT, GUARDED_NAMES, Confinement
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from holdfast.sandbox.own_code import OWN_CODE, resolve_with_links
from holdfast.sandbox.placeholders import PlaceholderVersion, is_placeholder, keep_placeholders

_GIT_FILE_BYTES = 4096
_MAX_FOLDER_ENTRIES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A path to mount on itself: a root, or a name directly in a root."""

    target: OpenedPath
    is_read_only: bool = True
    """False for a name that the server may change, in a root that is otherwise read-only."""
    is_placeholder: bool = False
    """Whether it is an empty folder that was created for a missing name."""


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that lie in none of the other paths. A root inside another root needs no mount of its own."""
    unique = tuple(dict.fromkeys(paths))
    return tuple(
        path for path in unique if not any(path != other and is_within(path, other) for other in unique)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPlan:
    """The guards to mount in a server's roots, and the roots to watch while it runs."""

    guards: tuple[Guard, ...]
    watched: tuple[GuardedRoot, ...]


def guard_roots(
    roots: Sequence[OpenedPath],
    confinement: Confinement,
    opener: PathOpener,
    after_setup: ExitStack,
    after_exit: ExitStack,
    executed: Iterable[str] = OWN_CODE,
) -> GuardPlan:
    """Lock the roots, create placeholders for missing names, and return the guards.

    `after_setup` and `after_exit` release the locks; `after_exit` also removes the placeholders. `executed` is what the host executes or imports; it is guarded, too. If a name can be neither opened nor created, the
    whole root is read-only: the server may own the root, so it could change the root's mode and create the name.
    """
    guards: list[Guard] = []
    watched: list[GuardedRoot] = []
    names = tuple(name for name in GUARDED_NAMES if name not in confinement.writable)
    if_present = tuple(name for name in GUARDED_IF_PRESENT if name not in confinement.writable)
    linked = [path for root in roots for path in _link_targets(root.path, (*names, *if_present))]
    not_writable = with_bind_mounts((*executed, *linked), read_mounts())
    for root in roots:
        locks = lock_root(root.path, [step.status for step in root.self_and_parents()])
        after_exit.enter_context(locks.running)
        after_setup.enter_context(locks.setup)
        placeholders: Mapping[str, PlaceholderVersion] = {}
        opened: list[OpenedPath | None] = []
        whole_root_read_only = any(is_within(path, root.path) for path in confinement.read_only)
        if not whole_root_read_only:
            placeholders = after_exit.enter_context(keep_placeholders(root, names, locks))
            opened = [opener.child(root, name) for name in names]
            opened += [child for name in if_present if (child := opener.child(root, name)) is not None]
            opened += _open_names(root, top_level_names(root.path, not_writable), confinement, opener)
            whole_root_read_only = None in opened
        if whole_root_read_only:
            guards += _guard_all_but(root, confinement.writable, opener)
            continue
        found = {child.path: child for child in opened if child is not None}
        guards += _guard_names(root, found.values(), confinement)
        others = [child for child in found.values() if child.name not in placeholders]
        watched.append(GuardedRoot(root, locks, placeholders, others))
        after_exit.callback(watched[-1].close)
    return GuardPlan(guards=tuple(guards), watched=tuple(watched))


def top_level_names(root: str, paths: Iterable[str]) -> frozenset[str]:
    """The names directly in a root that contain one of the paths, or are one; `.` if a path contains the root, or is it."""
    return frozenset(
        "." if is_within(root, path) else path.removeprefix(root.rstrip("/") + "/").partition("/")[0]
        for path in paths
        if is_within(root, path) or is_within(path, root)
    )


def _open_names(
    root: OpenedPath, names: Iterable[str], confinement: Confinement, opener: PathOpener
) -> Iterator[OpenedPath | None]:
    """Open these names. Yield None for a name that cannot be guarded: `.` (the whole root), a missing name, or a link."""
    for name in names:
        if name in confinement.writable and name != ".":
            continue
        opened = opener.child(root, name) if name != "." else None
        yield opened if opened is not None and (opened.is_folder or opened.is_file) else None


def _link_targets(root: str, names: Iterable[str]) -> Iterator[str]:
    """The targets of links in guarded folders and in their `hooks`, such as `.git/hooks`, and the links on the way there.

    If a folder has too many files to check, the root itself, so that all of it becomes read-only.
    """
    for folder in (f"{root}/{name}{below}" for name in names for below in ("", "/hooks")):
        try:
            with os.scandir(folder) as entries:
                seen = list(islice(entries, _MAX_FOLDER_ENTRIES + 1))
        except OSError:  # missing, or no folder
            continue
        if len(seen) > _MAX_FOLDER_ENTRIES:
            yield root
        yield from resolve_with_links(Path(entry.path) for entry in seen if entry.is_symlink())


def _guard_all_but(root: OpenedPath, writable: Iterable[str], opener: PathOpener) -> Iterator[Guard]:
    """Make a whole root read-only, except for the names that the server may change."""
    yield Guard(target=root)
    for name in writable:
        opened = opener.child(root, name) if name in (*GUARDED_NAMES, *GUARDED_IF_PRESENT) else None
        if opened is not None and (opened.is_folder or opened.is_file):
            yield Guard(target=opened, is_read_only=False)


def _guard_names(root: OpenedPath, found: Iterable[OpenedPath], confinement: Confinement) -> Iterator[Guard]:
    for opened in found:
        if not opened.is_folder and not opened.is_file:
            kind = "a symbolic link" if opened.is_link else "neither a file nor a folder"
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"{opened.path!r} is {kind}, so it cannot be made read-only for a confined server. Replace it with a file"
                f' or folder, or add "writable": ["{opened.name}"] to the server\'s entry in your own list of servers.',
            )
        if opened.name == ".git" and opened.is_file:
            _check_git_file(root, opened, confinement)
        yield Guard(target=opened, is_placeholder=is_placeholder(opened))


def _check_git_file(root: OpenedPath, opened: OpenedPath, confinement: Confinement) -> None:
    """Raise if a `.git` file points to a repository in a root that is not guarded: the server could change its hooks."""
    fd = opened.open_to_read()
    try:
        text = os.read(fd, _GIT_FILE_BYTES).decode(errors="surrogateescape")
    finally:
        os.close(fd)
    named = text.removeprefix("gitdir:").strip()
    if "\0" in named:  # not a path, so git cannot use it either
        return
    target = os.path.realpath(os.path.join(root.path, named))  # noqa: PTH118 - not a path yet
    guarded = [f"{folder}/{name}" for folder in confinement.roots for name in GUARDED_NAMES]
    if any(is_within(target, folder) for folder in confinement.roots) and not any(
        is_within(target, path) for path in guarded
    ):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{opened.path!r} names {target!r} as the repository. A confined server could change that repository and its"
            ' hooks. Move the repository out of the folder, or add ".git" to "writable" in the server\'s entry in your own'
            " list of servers.",
        )
