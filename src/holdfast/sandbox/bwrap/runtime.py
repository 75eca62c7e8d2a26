"""Find the files that a server's program needs to run: itself, and its Python or Node installation.

Files in a root are not followed, because a server can change them. Outside of the roots, links, `#!` lines and
`pyvenv.cfg` are followed. What is found is kept open, so that a recognised file cannot be replaced before it is mounted.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.held_path import HeldPath, Identity, PathHolder, SymlinkPolicy
from holdfast.sandbox.own_code import OWN_PYTHON

_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/nix/store/", "/gnu/store/")
_RUNTIME_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
_RUNTIME_MARKERS = (("pyvenv.cfg",), ("lib", "node_modules"), ("include", "node"))
_DEFAULT_INTERPRETERS = ("python3", "node")
_MAX_STEPS = 16  # links and `#!` lines
_FIRST_LINE_BYTES = 256
_PYVENV_BYTES = 64 * 1024
_LIB_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRuntime:
    """A program, and what it needs outside the system folders and its roots."""

    program: str
    """Its path in the sandbox. Its folder is resolved; a link at the end is kept, because Python finds its environment by it."""
    needed: tuple[HeldPath, ...]
    """Regular files, folders of recognised runtimes, and links."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the needed files."""
        return tuple(held.path for held in self.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Folders whose content is not trusted, because confined servers can change it."""

    own: Mapping[Identity, str]
    """The server's own roots, and their paths."""
    others: frozenset[Identity] = frozenset()
    """Roots of other confined servers."""


NO_ROOTS = Roots(own={})


def find_runtime(spec: ProcessSpec, roots: Roots, opened: ExitStack) -> ProgramRuntime:
    """Find the program by the server's PATH and working directory, and what it needs.

    A folder is only included if it is recognised as a runtime (a Python environment, a Node installation, a
    `node_modules`); otherwise only the program's file is. For a program in a root, the default interpreters are
    included: Holdfast's own Python, and `python3` and `node` of the server's PATH.
    """
    finder = _Finder(spec, roots, opened)
    name = spec.argv[0] if spec.argv else ""
    program = finder.locate(name)
    if program is None:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {name!r}: there is no such program. Install it, or correct the server's command."
            if not finder.found_unusable
            else f"Could not start {name!r}: {finder.found_unusable!r} is not a regular file that may be executed."
            " Check the file and its permissions, or correct the server's command.",
            command=name,
        )
    needed = {held.path: held for held in finder.follow(program)}
    return ProgramRuntime(program=finder.path_in_sandbox(program), needed=tuple(needed.values()))


class _Finder:
    def __init__(self, spec: ProcessSpec, roots: Roots, opened: ExitStack) -> None:
        self._cwd = spec.cwd
        self._search_path = spec.env.get("PATH", os.defpath)
        self._roots = roots
        self._opened = opened
        self._stop_at = {*roots.own, *roots.others}
        self.found_unusable = ""

    def locate(self, name: str) -> HeldPath | None:
        """The program with this name, as a shell finds it; None if there is none. A link at the end is kept."""
        if not name or "\0" in name:
            return None
        folders = [""] if "/" in name else self._search_path.split(":")
        for folder in folders:
            path = os.path.normpath(os.path.join(self._cwd, folder, name))  # noqa: PTH118 - names, not paths yet
            with ExitStack() as scratch:
                holder = PathHolder(scratch, self._stop_at)
                try:
                    found = holder.open(path, links="in folders")
                    is_program = self._is_program(holder, found)
                except OSError:
                    continue
                if is_program:
                    self._opened.push(scratch.pop_all())
                    return found
                self.found_unusable = self.found_unusable or path
        return None

    def path_in_sandbox(self, program: HeldPath) -> str:
        """The program's path. A root is always mounted at its own path."""
        folder = self._roots.own.get(program.identity, program.path)
        return "/".join((folder, *program.rest))

    def follow(self, program: HeldPath) -> Iterator[HeldPath]:
        """What the program needs, then each target of a link and each interpreter of a script."""
        holder = PathHolder(self._opened, self._stop_at)
        if self._may_be_written(program):
            yield from self._needed_in_root(holder, program)
            for interpreter in self._default_interpreters():
                yield from self._follow_outside(holder, interpreter)
        else:
            yield from self._follow_outside(holder, program)

    def _follow_outside(self, holder: PathHolder, program: HeldPath) -> Iterator[HeldPath]:
        step: HeldPath | None = program
        for _ in range(_MAX_STEPS):
            if step is None:
                return
            if self._may_be_written(step):
                yield from self._needed_in_root(holder, step)
                return
            yield from self._needed(holder, step)
            if step.is_link:
                step = _open(holder, step.link_target(), "in folders", step.folder)
            else:
                step = self._interpreter(step)

    def _default_interpreters(self) -> Iterator[HeldPath]:
        for name in (*_DEFAULT_INTERPRETERS, OWN_PYTHON):
            found = self.locate(name)
            if found is not None and not self._may_be_written(found):
                yield found

    def _may_be_written(self, step: HeldPath) -> bool:
        """Whether this is a root: `PathHolder` stops there, so it stands for everything in it."""
        return step.identity in self._stop_at

    def _is_program(self, holder: PathHolder, found: HeldPath) -> bool:
        if self._may_be_written(found):
            found = holder.open_below(found, found.rest)
            return found.is_link or _is_executable(found)  # the link is followed inside the sandbox only
        if found.is_link:
            target = holder.open(found.link_target(), links="follow", start=found.folder)
            return self._may_be_written(target) or _is_executable(target)
        return _is_executable(found)

    def _needed_in_root(self, holder: PathHolder, step: HeldPath) -> Iterator[HeldPath]:
        """Nothing from the server's own root, which is mounted anyway. From another root, only the program's file or link."""
        if step.identity in self._roots.own:
            return
        try:
            program = holder.open_below(step, step.rest)
        except OSError:
            return
        if program.is_link or program.is_file:
            yield from self._needed(holder, program, follow_base=False)

    def _interpreter(self, script: HeldPath) -> HeldPath | None:
        """The interpreter in a `#!` line: an absolute path, `env NAME` or `env -S NAME`. Other forms are ignored."""
        if not script.is_file:
            return None
        line = _read_start(script, _FIRST_LINE_BYTES).split(b"\n")[0]
        if not line.startswith(b"#!"):
            return None
        words = os.fsdecode(line[2:]).split()
        if len(words) > 1 and PurePath(words[0]).name == "env":
            name = words[2] if words[1] == "-S" and len(words) > 2 else words[1]
            return None if "/" in name or name.startswith("-") or "=" in name else self.locate(name)
        return self.locate(words[0]) if words and words[0].startswith("/") else None

    def _needed(self, holder: PathHolder, step: HeldPath, *, follow_base: bool = True) -> Iterator[HeldPath]:
        if step.path.startswith(_SYSTEM) or not (step.is_link or step.is_file) or step.folder is None:
            return
        modules = [folder for folder in step.folder.self_and_parents() if folder.name == "node_modules"]
        parent = step.folder.folder if step.folder.name == "bin" else None
        prefix = holder.reopen(parent) if parent is not None and not modules else None
        if modules:
            yield holder.reopen(modules[-1])  # the outermost
        elif prefix is not None and _is_runtime(holder, prefix):
            yield from _runtime_parts(holder, prefix)
            if follow_base and (base := self._base_installation(holder, prefix)):
                yield from _runtime_parts(holder, base)
        else:
            yield step

    def _base_installation(self, holder: PathHolder, prefix: HeldPath) -> HeldPath | None:
        """The installation that a Python environment is based on."""
        config = holder.child(prefix, "pyvenv.cfg")
        if config is None or not config.is_file:
            return None
        for line in _read_start(config, _PYVENV_BYTES).decode(errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home" and value.strip().startswith("/"):
                home = _open(holder, value.strip(), "follow")
                if home is None or self._may_be_written(home) or home.name != "bin" or home.folder is None:
                    return None
                base = holder.reopen(home.folder)
                return base if _is_runtime(holder, base) else None
        return None


def _open(
    holder: PathHolder, path: str, links: SymlinkPolicy, start: HeldPath | None = None
) -> HeldPath | None:
    try:
        return holder.open(path, links=links, start=start)
    except (OSError, ValueError):  # ValueError: a NUL character
        return None


def _is_executable(held: HeldPath) -> bool:
    return held.is_file and bool(held.status.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))


def _read_start(held: HeldPath, size: int) -> bytes:
    try:
        descriptor = held.open_to_read()
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _runtime_parts(holder: PathHolder, prefix: HeldPath) -> Iterator[HeldPath]:
    for name in _RUNTIME_PARTS:
        part = holder.child(prefix, name)
        if part is not None and (part.is_link or (part.is_file if name == "pyvenv.cfg" else part.is_folder)):
            yield part


def _is_runtime(holder: PathHolder, prefix: HeldPath) -> bool:
    if prefix.path in ("/", "/usr") or prefix.path.startswith(_SYSTEM):
        return False
    return any(_exists(holder, prefix, *marker) for marker in _RUNTIME_MARKERS) or _has_python_library(
        holder, prefix
    )


def _has_python_library(holder: PathHolder, prefix: HeldPath) -> bool:
    library = holder.child(prefix, "lib")
    if library is None or not library.is_folder:
        return False
    try:
        descriptor = library.open_to_read()
    except OSError:
        return False
    try:
        with os.scandir(descriptor) as entries:
            names = [
                entry.name for entry in islice(entries, _LIB_ENTRIES) if entry.name.startswith("python3")
            ]
    finally:
        os.close(descriptor)
    return any(_exists(holder, library, name, "os.py") for name in names[:_MAX_STEPS])


def _exists(holder: PathHolder, folder: HeldPath, *names: str) -> bool:
    with ExitStack() as scratch:
        try:
            found = PathHolder(scratch, holder.stop_at).open_below(folder, names)
        except OSError:
            return False
        return found.is_file or found.is_folder
