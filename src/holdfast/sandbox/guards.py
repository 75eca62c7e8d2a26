"""Which paths inside its roots a confined server may not change: those that a person's own programs obey or execute.

A guarded path is mounted read-only on itself. The folders on the way to it are mounted on themselves, writable: the
kernel does not let a mount point be renamed, so a server cannot move them away and put others in their place.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import GUARDED_NAMES, Confinement
from holdfast.sandbox.held_path import HeldPath, PathHolder
from holdfast.sandbox.placeholders import hold_placeholders, is_placeholder

_DEPTH = 3
_ENTRIES = 2000
_NESTED_MOUNTS = 40
_READ_ONLY_MOUNTS = 20
_SKIPPED = frozenset({*GUARDED_NAMES, "node_modules", ".venv", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A path to mount on itself."""

    held: HeldPath
    is_read_only: bool = True
    """Otherwise it can be written, but not renamed or removed."""
    is_placeholder: bool = False
    """Whether it is an empty folder, made because nothing has this name."""


def guard_roots(
    roots: Iterable[HeldPath], confinement: Confinement, holder: PathHolder, until_gone: ExitStack
) -> tuple[Guard, ...]:
    """What to mount read-only in the roots. Names that do not exist yet get placeholders until the server has ended."""
    guards: dict[str, Guard] = {}
    names = tuple(name for name in GUARDED_NAMES if name not in confinement.writable)
    roots = tuple(roots)
    for root in roots:
        until_gone.enter_context(hold_placeholders(root, names))
        for guard in _guard_top(root, names, holder):
            guards[guard.held.path] = guard
    for root in roots:
        budget = _NESTED_MOUNTS
        for path in _read_only_below(root, confinement.read_only):
            _add(guards, _guard_with_parents(root, path, holder))
        for path in _find_repositories(root, names):
            nested = tuple(_guard_with_parents(root, path, holder))
            budget -= sum(guard.held.path not in guards for guard in nested)
            if budget >= 0:
                _add(guards, nested)
    return tuple(guards.values())


def _add(guards: dict[str, Guard], more: Iterable[Guard]) -> None:
    for guard in more:
        if guard.is_read_only or guard.held.path not in guards:
            guards[guard.held.path] = guard


def _guard_top(root: HeldPath, names: Iterable[str], holder: PathHolder) -> Iterator[Guard]:
    for name in names:
        held = holder.child(root, name)
        if held is None:
            continue
        if not held.is_folder and not held.is_file:
            kind = "a symbolic link" if held.is_link else "neither a file nor a folder"
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"{held.path!r} is {kind}, so it cannot be made read-only for a confined server. Replace it with a file"
                f' or folder, or add "writable": ["{name}"] to the server\'s entry in your own list of servers.',
            )
        yield Guard(held=held, is_placeholder=is_placeholder(held))


def _guard_with_parents(root: HeldPath, names: tuple[str, ...], holder: PathHolder) -> Iterator[Guard]:
    here = root
    if not names:
        yield Guard(held=root)
    for position, name in enumerate(names, 1):
        child = holder.child(here, name)
        if child is None or not (child.is_folder or child.is_file):
            return  # missing, or a link: it can only be guarded as far as this
        here = child
        yield Guard(held=here, is_read_only=position == len(names))


def _read_only_below(root: HeldPath, paths: Iterable[str]) -> Iterable[tuple[str, ...]]:
    """The read-only paths below a root. Of many, the folders that contain them, in the end the root itself."""
    inside = f"{root.path}/"
    found = {tuple(path.removeprefix(inside).split("/")) for path in paths if path.startswith(inside)}
    while len(found) > _READ_ONLY_MOUNTS:
        deepest = max(map(len, found))
        found = {names[: deepest - 1] for names in found}
    return sorted(found)


def _find_repositories(root: HeldPath, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The guarded names in subfolders that are repositories, found in a search of bounded depth and cost."""
    if ".git" not in names:
        return
    folders: deque[tuple[str, ...]] = deque([()])
    budget = _ENTRIES
    while folders and budget > 0:
        folder = folders.popleft()
        found, subfolders, count = _list_folder(root, folder, budget)
        budget -= count
        if folder and ".git" in found:
            yield from ((*folder, name) for name in names if name in found)
        if len(folder) < _DEPTH:
            folders.extend((*folder, name) for name in subfolders)


def _list_folder(root: HeldPath, names: tuple[str, ...], limit: int) -> tuple[set[str], list[str], int]:
    """The guarded names in a folder, the subfolders to search, and the number of entries read."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    found: set[str] = set()
    subfolders: list[str] = []
    count = 0
    with ExitStack() as opened:
        try:
            fd = root.open_to_read()
            opened.callback(os.close, fd)
            for name in names:
                fd = os.open(name, flags, dir_fd=fd)
                opened.callback(os.close, fd)
            with os.scandir(fd) as entries:
                for entry in islice(entries, limit):
                    count += 1
                    if entry.name in GUARDED_NAMES:
                        found.add(entry.name)
                    elif entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                        subfolders.append(entry.name)
        except OSError:  # not readable, or gone since it was listed
            pass
    return found, sorted(subfolders), count
