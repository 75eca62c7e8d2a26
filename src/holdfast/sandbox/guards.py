"""Guard files and folders in the roots of a confined server, so that it cannot change what the user's own programs execute.

Each guarded name gets its own mount: a read-only bind mount of itself or, for a placeholder under bubblewrap, an empty file
system. Only names directly in a root are guarded: bubblewrap mounts by path, and another server could replace a folder on the
path of a deeper name.
"""

import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.confined_folders import lock_root, running_below
from holdfast.model.descriptor_limit import descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_IF_PRESENT, GUARDED_NAMES, INSTRUCTION_FILES
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement
from holdfast.sandbox.guard_watch import GuardedRoot
from holdfast.sandbox.linked_packages import AT_START, find_linked_packages
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from holdfast.sandbox.own_code import OWN_CODE
from holdfast.sandbox.package_watch import PackageRoots
from holdfast.sandbox.placeholders import PlaceholderVersion, is_placeholder, keep_placeholders
from holdfast.sandbox.read_only_names import find_read_only_names, top_level_names
from holdfast.sandbox.second_names import find_second_name

log = logging.getLogger(__name__)

_GUARDED = frozenset((*GUARDED_NAMES, *GUARDED_IF_PRESENT, *INSTRUCTION_FILES))
_MAX_GUARDS = 240  # each needs a descriptor, and the kernel passes at most 253 in one message
_MAX_PLACEHOLDERS = 1200  # each takes six of bubblewrap's 9,000 arguments
_DESCRIPTORS_PER_ROOT = 8  # not counting its guards (see `KeptFiles`), and the lock on each folder above it
_ALWAYS_ALLOWED_DESCRIPTORS = 79  # enough for one root at the greatest depth that `open_root` accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A path that gets its own mount: a root, or a name directly in a root."""

    target: OpenedPath
    is_read_only: bool = True
    """False for a name that the server may change, in a root that is otherwise read-only."""
    is_placeholder: bool = False
    """Whether it is a folder that was created for a missing name, and that contains only a `.gitignore`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPlan:
    """The guards to mount in a server's roots, and the roots to watch while it runs."""

    guards: tuple[Guard, ...]
    watched: tuple[GuardedRoot, ...]
    packages: PackageRoots
    """Where packages may be installed while the server runs."""


def guard_roots(
    roots: Sequence[OpenedPath],
    confinement: Confinement,
    resources: ExitStack,
    after_setup: ExitStack,
    after_exit: ExitStack,
    executed: Iterable[str] = OWN_CODE,
) -> GuardPlan:
    """Lock the roots, create placeholders for missing names, and return the guards.

    `resources` closes the opened names. `after_setup` and `after_exit` release the locks; `after_exit` also removes the
    placeholders. `executed` is what the host executes or imports; it is also guarded. If a name can be neither opened nor
    created, the whole root is read-only: the server may own the root, so it could change the root's mode and create the name.

    Raise `ServersEndingError` if other servers in a root lack guards that this server needs. They are then being ended.
    """
    _check_descriptors(roots)
    guards: list[Guard] = []
    watched: list[GuardedRoot] = []
    paths = tuple(root.path for root in roots)
    linked = find_linked_packages(
        paths, [f"{path}/{name}" for path in paths for name in confinement.writable], AT_START
    )
    not_searched: set[str] = set()
    names = tuple(name for name in GUARDED_NAMES if name not in confinement.writable)
    if_present = tuple(
        name for name in (*GUARDED_IF_PRESENT, *INSTRUCTION_FILES) if name not in confinement.writable
    )
    read_only = find_read_only_names(paths, executed, confinement.writable)
    for root in roots:
        locks = lock_root(root.path, [step.status for step in root.self_and_parents()])
        after_exit.enter_context(locks.running_lock)
        after_exit.enter_context(locks.writing_lock)
        after_setup.enter_context(locks.setup_locks)
        extra_names = read_only[root.path]
        _check_grants(root, extra_names, confinement)
        extra_names |= (packages := linked.get(root.path, frozenset()))
        _log_linked(root.path, packages)
        extra_names |= _find_running_below(root.path)
        extra_names |= _check_second_names(root.path, (*names, *if_present))
        by_others = locks.guards.guarded_by_others()
        adopted = frozenset[str]() if "." in confinement.writable else by_others - {*confinement.writable}

        is_read_only = "." in extra_names or any(is_within(path, root.path) for path in confinement.read_only)
        # Also for a read-only root: the last server to end in the root removes the placeholders of all servers.
        placeholders = after_exit.enter_context(keep_placeholders(root, () if is_read_only else names, locks))
        opener = PathOpener(resources)
        opened = (
            None if is_read_only else _open_guarded(root, names, if_present, extra_names, adopted, opener)
        )
        if opened is None:
            writable = [*_guard_writable(root, confinement.writable, opener)]
            guards += [Guard(target=root), *writable]
            if not writable:  # the server cannot change anything in this root
                locks.writing_lock.close()
            continue

        guards += _guard_names(opened, placeholders, opener)
        bound = sum(not guard.is_placeholder for guard in guards)
        if bound > _MAX_GUARDS or len(guards) - bound > _MAX_PLACEHOLDERS:
            raise _too_many(roots)
        locks.guards.write([child.name for child in opened], confinement.writable, by_others)
        not_placeholders = [child for child in opened if child.name not in placeholders]
        watched.append(GuardedRoot(root, locks, placeholders, not_placeholders, roots[0].path))
        after_exit.callback(watched[-1].close)
        after_exit.callback(watched[-1].report_new_names)
        not_searched.update(f"{root.path}/{name}" for name in confinement.writable)
        not_searched.update(child.path for child in opened)
    changeable = PackageRoots(
        roots=tuple(each.path for each in watched), not_searched=frozenset(not_searched)
    )
    return GuardPlan(guards=tuple(guards), watched=tuple(watched), packages=changeable)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that lie in none of the other paths. A root inside another root needs no mount of its own."""
    unique = tuple(dict.fromkeys(paths))
    return tuple(
        path for path in unique if not any(path != other and is_within(path, other) for other in unique)
    )


def _check_descriptors(roots: Sequence[OpenedPath]) -> None:
    """Raise if the roots need so many descriptors that the rest of this process would have too few."""
    needed = sum(_DESCRIPTORS_PER_ROOT + root.path.count("/") for root in roots)
    if needed > max(descriptor_limit() // 3, _ALWAYS_ALLOWED_DESCRIPTORS):
        raise _too_many(roots)


def _too_many(roots: Sequence[OpenedPath]) -> HoldfastError:
    return HoldfastError(
        codes.SPAWN_FAILED,
        f"A confined server cannot be started with {len(roots)} folders: there is too much to make read-only in them. Use"
        " fewer folders. If the limit of open files (ulimit -n) is low, raise it.",
    )


def _check_grants(root: OpenedPath, names: Iterable[str], confinement: Confinement) -> None:
    """Raise if `writable` lets the server change one of these names: code that other programs run is in it, or may be."""
    for name in names:
        # "." in `writable` has another meaning: the server may change a root although approved programs are in it.
        if name in confinement.writable and name != ".":
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f'The server may change {f"{root.path}/{name}"!r} ("writable" in its entry or its approval), but code that your'
                " programs run, such as a git hook, may be in it: a link or a .git file leads there, or there are too many links to"
                f' check. Remove {name!r} from "writable". If the server is meant to change that code, add ".git", or the name of'
                ' the link, to "writable" too.',
            )


def _log_linked(root: str, found: frozenset[str]) -> None:
    if "." in found:
        log.warning(
            "a folder is read-only for confined programs",
            extra={
                "root": root,
                "reason": "packages may be installed into it through a link: a folder such as .venv is a link, or contains one. Replace the link with a folder",
            },
        )
    elif found:
        log.info(
            "a folder of packages is read-only for confined programs, because it shares files with other projects, or is too large to find out",
            extra={"root": root, "names": sorted(found)},
        )


def _find_running_below(root: str) -> frozenset[str]:
    """The names directly in a root that contain the roots of running servers.

    A server could move files into such a root, and out again. The server that runs there would keep its access to them.
    """
    found = top_level_names(root, running_below(root))
    if found:
        log.info(
            "a folder is read-only for a confined program, because another confined server runs in it",
            extra={"root": root, "names": sorted(found)},
        )
    return found


def _check_second_names(root: str, guarded: Iterable[str]) -> frozenset[str]:
    found = find_second_name(root, guarded)
    if not found:
        return frozenset()
    log.warning(
        "a folder is read-only for confined programs",
        extra={
            "root": root,
            "reason": f"{found!r} has a second name (hard link), by which it could be changed. Replace it with a copy",
        },
    )
    return frozenset(".")


def _open_guarded(
    root: OpenedPath,
    names: Iterable[str],
    if_present: Iterable[str],
    extra_names: frozenset[str],
    adopted: frozenset[str],
    opener: PathOpener,
) -> list[OpenedPath] | None:
    """Open all names to guard in a root. None if one cannot be guarded: it is missing and got no placeholder, or is a link.

    Other servers in the root guard those in `adopted`. If one of them is missing, those servers are ended, so it is skipped.
    """
    opened = [opener.child(root, name) for name in names]
    opened += [
        child
        for name in if_present
        if (child := opener.child(root, name)) is not None
        and not (child.is_link and name in INSTRUCTION_FILES)
    ]
    existing = [child for child in opened if child is not None]
    _check_kinds(existing)
    for name in extra_names.difference(child.name for child in existing):
        child = opener.child(root, name)
        opened.append(child if child is not None and (child.is_folder or child.is_file) else None)
    for name in adopted.difference(child.name for child in opened if child is not None):
        if (child := opener.child(root, name)) is not None and (child.is_folder or child.is_file):
            opened.append(child)
    guarded = [child for child in opened if child is not None]
    return guarded if len(guarded) == len(opened) else None


def _guard_writable(root: OpenedPath, writable: Iterable[str], opener: PathOpener) -> Iterator[Guard]:
    """The mounts of the names that the server may change in a root that is otherwise read-only."""
    for name in writable:
        opened = opener.child(root, name) if name in _GUARDED else None
        if opened is not None and (opened.is_folder or opened.is_file):
            yield Guard(target=opened, is_read_only=False)


def _check_kinds(names: Iterable[OpenedPath]) -> None:
    """Raise if a guarded name is neither a file nor a folder, such as a link: it cannot be mounted."""
    for opened in names:
        if not opened.is_folder and not opened.is_file:
            kind = "a symbolic link" if opened.is_link else "neither a file nor a folder"
            command = ["holdfast", "servers", "approve", "NAME", "--confined", "--writable", opened.name]
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"{opened.path!r} is {kind}, so it cannot be made read-only for a confined server. Replace it with a file"
                f" or folder. To let the server change it instead: for a project's server, run `{shlex.join(command)}`; for"
                f' a server in your own list, add "writable": ["{opened.name}"] to its entry.',
            )


def _guard_names(
    names: Iterable[OpenedPath], placeholders: Mapping[str, PlaceholderVersion], opener: PathOpener
) -> Iterator[Guard]:
    for opened in names:
        guard = Guard(target=opened, is_placeholder=is_placeholder(opened))
        if guard.is_placeholder and opened.name in placeholders:
            opener.close(opened)  # from now on, only its path is needed
        yield guard
