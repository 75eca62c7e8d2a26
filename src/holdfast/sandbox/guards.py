"""Which names in its roots a confined server may not change: those that the user's own programs read or execute.

Only names directly in a root are guarded. Each is mounted read-only on itself, by its path, so no folder on that path
may be one that another server can write to: for deeper names that cannot be ensured.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.confined_locks import lock_root
from holdfast.model.errors import HoldfastError
from holdfast.model.process import GUARDED_NAMES, Confinement
from holdfast.sandbox.held_path import HeldPath, PathHolder
from holdfast.sandbox.placeholders import hold_placeholders, is_placeholder
from holdfast.sandbox.protected_folders import is_within

_GIT_FILE_BYTES = 4096


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


def guard_roots(
    roots: Iterable[HeldPath],
    confinement: Confinement,
    holder: PathHolder,
    after_setup: ExitStack,
    after_exit: ExitStack,
) -> tuple[Guard, ...]:
    """Lock the roots, and return the paths to mount in them.

    A name that does not exist yet gets a placeholder, which `after_exit` removes. A root in which a name can be neither
    opened nor created is read-only as a whole: its owner, also the server, could change the root's mode.
    """
    guards: list[Guard] = []
    names = tuple(name for name in GUARDED_NAMES if name not in confinement.writable)
    for root in roots:
        locks = lock_root(root.path, [step.status for step in root.self_and_parents()])
        after_exit.enter_context(locks.running)
        after_setup.enter_context(locks.setup)
        held: list[HeldPath | None] = [None]
        if not any(is_within(path, root.path) for path in confinement.read_only):
            after_exit.enter_context(hold_placeholders(root, names, locks))
            held = [holder.child(root, name) for name in names]
        found = [child for child in held if child is not None]
        if len(found) < len(held):
            guards += _guard_all_but(root, confinement.writable, holder)
        else:
            guards += _guard_names(root, found, confinement)
    return tuple(guards)


def _guard_all_but(root: HeldPath, writable: Iterable[str], holder: PathHolder) -> Iterator[Guard]:
    """Make a whole root read-only, except for the names that the server may change."""
    yield Guard(held=root)
    for name in writable:
        held = holder.child(root, name) if name in GUARDED_NAMES else None
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
    target = os.path.realpath(os.path.join(root.path, text.removeprefix("gitdir:").strip()))  # noqa: PTH118 - not a path yet
    guarded = [f"{folder}/{name}" for folder in confinement.roots for name in GUARDED_NAMES]
    if any(is_within(target, folder) for folder in confinement.roots) and not any(
        is_within(target, path) for path in guarded
    ):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{held.path!r} names {target!r} as the repository, which a confined server could change, with its hooks. Move"
            ' the repository out of the folder, or add ".git" to "writable" in the server\'s entry in your own list of servers.',
        )
