"""Which names in its roots a confined server may not change: those that the user's own programs read or execute.

Only names directly in a root are guarded. Each is mounted read-only on itself, by its path, so no folder on that path
may be one that another server can write to: for deeper names that cannot be ensured.
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
from holdfast.model.mounts import is_within, read_mounts, with_aliases
from holdfast.model.process import GUARDED_IF_PRESENT, GUARDED_NAMES, Confinement
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.held_path import HeldPath, PathHolder
from holdfast.sandbox.own_code import OWN_CODE, resolve_with_links
from holdfast.sandbox.placeholders import Version, hold_placeholders, is_placeholder

_GIT_FILE_BYTES = 4096
_MAX_FILES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A path to mount on itself: a root, or a name in one."""

    held: HeldPath
    is_read_only: bool = True
    """False for a name that the server may change in a root that is read-only otherwise."""
    is_placeholder: bool = False
    """Whether it is an empty folder that was created for a missing name."""


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that lie in none of the others. A root inside another one needs no mount of its own."""
    unique = tuple(dict.fromkeys(paths))
    return tuple(
        path for path in unique if not any(path != other and is_within(path, other) for other in unique)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRoots:
    """The paths to mount in a server's roots, and what to watch while it runs."""

    guards: tuple[Guard, ...]
    watched: tuple[GuardedRoot, ...]


def guard_roots(
    roots: Sequence[HeldPath],
    confinement: Confinement,
    holder: PathHolder,
    after_setup: ExitStack,
    after_exit: ExitStack,
    executed: Iterable[str] = OWN_CODE,
) -> GuardedRoots:
    """Lock the roots, and return the paths to mount in them. `executed` is what the host executes or imports.

    A name that does not exist yet gets a placeholder, which `after_exit` removes. A root in which a name can be neither
    opened nor created is read-only as a whole: its owner, which may be the server's user, could change the root's mode.
    """
    guards: list[Guard] = []
    watched: list[GuardedRoot] = []
    names = tuple(name for name in GUARDED_NAMES if name not in confinement.writable)
    present = tuple(name for name in GUARDED_IF_PRESENT if name not in confinement.writable)
    linked = [path for root in roots for path in _linked_from(root.path, (*names, *present))]
    read_only = with_aliases((*executed, *linked), read_mounts())
    for root in roots:
        locks = lock_root(root.path, [step.status for step in root.self_and_parents()])
        after_exit.enter_context(locks.running)
        after_setup.enter_context(locks.setup)
        placeholders: Mapping[str, Version] = {}
        held: list[HeldPath | None] = [None]
        if not any(is_within(path, root.path) for path in confinement.read_only):
            placeholders = after_exit.enter_context(hold_placeholders(root, names, locks))
            held = [holder.child(root, name) for name in names]
            held += [child for name in present if (child := holder.child(root, name)) is not None]
            held += _hold_names(root, names_that_contain(root.path, read_only), confinement, holder)
        found = {child.path: child for child in held if child is not None}
        if None in held:
            guards += _guard_all_but(root, confinement.writable, holder)
            continue
        guards += _guard_names(root, found.values(), confinement)
        others = [child for child in found.values() if child.name not in placeholders]
        watched.append(GuardedRoot(root, locks, placeholders, others))
        after_exit.callback(watched[-1].close)
    return GuardedRoots(guards=tuple(guards), watched=tuple(watched))


def names_that_contain(root: str, paths: Iterable[str]) -> frozenset[str]:
    """The names directly in a root that are, or contain, one of the paths; `.` if the root itself is one, or lies in one."""
    return frozenset(
        "." if is_within(root, path) else path.removeprefix(root.rstrip("/") + "/").partition("/")[0]
        for path in paths
        if is_within(root, path) or is_within(path, root)
    )


def _hold_names(
    root: HeldPath, names: Iterable[str], confinement: Confinement, holder: PathHolder
) -> Iterator[HeldPath | None]:
    """Open these names; None for one that cannot be guarded, because it is the whole root, missing, or a link."""
    for name in names:
        if name in confinement.writable and name != ".":
            continue
        held = holder.child(root, name) if name != "." else None
        yield held if held is not None and (held.is_folder or held.is_file) else None


def _linked_from(root: str, names: Iterable[str]) -> Iterator[str]:
    """What the links in guarded folders lead to, such as `.git/hooks/pre-commit`, and the links on the way.

    If a folder has too many files to look at all of them, the root itself.
    """
    for folder in (f"{root}/{name}{below}" for name in names for below in ("", "/hooks")):
        try:
            with os.scandir(folder) as entries:
                seen = list(islice(entries, _MAX_FILES + 1))
        except OSError:  # missing, or no folder
            continue
        if len(seen) > _MAX_FILES:
            yield root
        yield from resolve_with_links(Path(entry.path) for entry in seen if entry.is_symlink())


def _guard_all_but(root: HeldPath, writable: Iterable[str], holder: PathHolder) -> Iterator[Guard]:
    """Make a whole root read-only, except for the names that the server may change."""
    yield Guard(held=root)
    for name in writable:
        held = holder.child(root, name) if name in (*GUARDED_NAMES, *GUARDED_IF_PRESENT) else None
        if held is not None and (held.is_folder or held.is_file):
            yield Guard(held=held, is_read_only=False)


def _guard_names(root: HeldPath, found: Iterable[HeldPath], confinement: Confinement) -> Iterator[Guard]:
    for held in found:
        if not held.is_folder and not held.is_file:
            kind = "a symbolic link" if held.is_link else "neither a file nor a folder"
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"{held.path!r} is {kind}, so it cannot be made read-only for a confined server. Replace it with a file"
                f' or folder, or add "writable": ["{held.name}"] to the server\'s entry in your own list of servers.',
            )
        if held.name == ".git" and held.is_file:
            _check_git_file(root, held, confinement)
        yield Guard(held=held, is_placeholder=is_placeholder(held))


def _check_git_file(root: HeldPath, held: HeldPath, confinement: Confinement) -> None:
    """Refuse a `.git` file that names a repository which the server can write to: git would execute its hooks."""
    fd = held.open_to_read()
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
            f"{held.path!r} names {target!r} as the repository, which a confined server could change, with its hooks. Move"
            ' the repository out of the folder, or add ".git" to "writable" in the server\'s entry in your own list of servers.',
        )
