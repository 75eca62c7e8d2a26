"""Find the files that a server's program needs to run: the program itself, and its Python or Node installation.

Links, `#!` lines and `pyvenv.cfg` are followed, but not in a root, where a server can change them. The files stay open, so
that they cannot be replaced before they are mounted.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.program_files import editable_folders, script_files
from holdfast.sandbox.bwrap.system_files import MOUNTED_FOLDERS
from holdfast.sandbox.opened_path import (
    NO_FOLDERS,
    FolderSet,
    Identity,
    OpenedPath,
    PathOpener,
    SymlinkPolicy,
)
from holdfast.sandbox.own_code import OWN_PYTHON

_SYSTEM_PREFIXES = tuple(f"{folder}/" for folder in MOUNTED_FOLDERS)
_RUNTIME_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
# A folder with one of these is a runtime: a Python environment, or a Node installation.
_RUNTIME_MARKERS = (("pyvenv.cfg",), ("lib", "node_modules"), ("include", "node"))
_PYTHONS = ("python3", OWN_PYTHON)
_NODES = ("node",)
_MAX_STEPS = 16  # links and `#!` lines that are followed from one program
_MAX_PYTHONS = 16  # `lib/python3.…` folders of one installation
_FIRST_LINE_BYTES = 256
_PYVENV_BYTES = 64 * 1024
_MAX_LIB_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRuntime:
    """A program, and the files that it needs outside the system folders and its roots."""

    program: str
    """The program's path in the sandbox: a real path, but a link at its end is kept, because Python finds its environment by that link."""
    needed: tuple[OpenedPath, ...]
    """What to mount: regular files, folders of recognised runtimes, and links."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(opened.path for opened in self.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrustedFolders:
    """Folders whose content is not trusted, because confined servers can change it."""

    own: Mapping[Identity, str]
    """The server's own roots, and the readable folders that a confined process wrote, with their paths. They are mounted anyway."""
    all: FolderSet = NO_FOLDERS
    """The roots of all confined servers."""


NO_UNTRUSTED = UntrustedFolders(own={})


def find_runtime(spec: ProcessSpec, untrusted: UntrustedFolders, resources: ExitStack) -> ProgramRuntime:
    """Find the program by the server's PATH and working directory, and the files that it needs.

    If the program belongs to a runtime that is recognised (a Python environment, a Node installation, a `node_modules`), the
    runtime is needed; otherwise only the program's file. A program in a root needs the default interpreters: Holdfast's
    own Python, and the `python3` and `node` in the server's PATH; or only Python or only Node, if its `#!` line names it.
    """
    finder = _Finder(spec, untrusted, resources)
    name = spec.argv[0] if spec.argv else ""
    program = finder.locate(name)
    if program is None:
        problem = "there is no such program. Install it, or correct the server's command."
        if finder.unusable_path:
            problem = (
                f"{finder.unusable_path!r} is not a regular file that may be executed. Check the file and its permissions, or"
                " correct the server's command."
            )
        raise HoldfastError(codes.SPAWN_FAILED, f"Could not start {name!r}: {problem}", command=name)
    needed = {opened.path: opened for opened in (*finder.follow(program), *finder.follow_scripts())}
    folders = [opened.path for opened in needed.values() if opened.is_folder]
    outer = tuple(
        opened
        for opened in needed.values()
        if not any(opened.path != folder and is_within(opened.path, folder) for folder in folders)
    )
    return ProgramRuntime(program=finder.path_in_sandbox(program), needed=outer)


class _Finder:
    """Finds the program of one server, and what it needs. A *step* is a file, or a root that stands for a file in it."""

    def __init__(self, spec: ProcessSpec, untrusted: UntrustedFolders, resources: ExitStack) -> None:
        self._cwd = spec.cwd
        self._search_path = spec.env.get("PATH", os.defpath)
        self._untrusted = untrusted
        self._resources = resources
        self._stop_at = replace(untrusted.all, identities={*untrusted.own, *untrusted.all.identities})
        confinement = spec.confinement or Confinement()
        self._scripts = confinement.scripts
        self._protected = confinement.protected
        self.unusable_path = ""
        """A file with the program's name that may not be executed; empty if there is none."""

    def locate(self, name: str) -> OpenedPath | None:
        """The program with this name, as a shell finds it; None if there is none. A link at the end is kept."""
        if not name or "\0" in name:
            return None
        folders = [""] if "/" in name else self._search_path.split(":")
        for folder in folders:
            path = os.path.normpath(os.path.join(self._cwd, folder, name))  # noqa: PTH118 - names, not paths yet
            with ExitStack() as scratch:
                opener = PathOpener(scratch, self._stop_at)
                try:
                    program = opener.open(path, links="keep_last")
                    is_program = self._is_program(opener, program)
                except OSError:
                    continue
                if is_program:
                    self._resources.push(scratch.pop_all())
                    return program
                self.unusable_path = self.unusable_path or path
        return None

    def path_in_sandbox(self, program: OpenedPath) -> str:
        """The program's path. A program in one of the server's roots gets the path that the root is mounted at."""
        folder = self._untrusted.own.get(program.identity, program.path)
        return "/".join((folder, *program.rest))

    def follow(self, program: OpenedPath) -> Iterator[OpenedPath]:
        """The files that the program needs, including those that its link targets and its interpreter need."""
        opener = PathOpener(self._resources, self._stop_at)
        if self._is_root(program):
            yield from self._needed_in_root(opener, program)
            for interpreter in self._default_interpreters(program):
                yield from self._follow_outside(opener, interpreter)
        else:
            yield from self._follow_outside(opener, program)

    def _follow_outside(self, opener: PathOpener, program: OpenedPath) -> Iterator[OpenedPath]:
        """The files that a program outside of the roots needs: follow its links and `#!` lines until they end or lead into a root."""
        step: OpenedPath | None = program
        for _ in range(_MAX_STEPS):
            if step is None:
                return
            if self._is_root(step):
                yield from self._needed_in_root(opener, step)
                return
            yield from self._needed_files(opener, step)
            if step.is_link:
                step = _open(opener, step.link_target(), "keep_last", step.folder)
            else:
                step = self._interpreter(step)

    def follow_scripts(self) -> Iterator[OpenedPath]:
        """The files of the scripts that the command names, such as `server.js` in `node server.js`."""
        opener = PathOpener(self._resources, self._stop_at)
        for script in self._scripts or ():
            path = os.path.normpath(os.path.join(self._cwd, script))  # noqa: PTH118 - names, not paths yet
            step = _open(opener, path, "keep_last")
            for _ in range(_MAX_STEPS):
                if step is None or step.path.startswith(_SYSTEM_PREFIXES):
                    break
                if self._is_root(step):
                    yield from self._needed_in_root(opener, step)
                    break
                if step.is_link:
                    yield step
                    step = _open(opener, step.link_target(), "keep_last", step.folder)
                    continue
                yield from self._needed_for_script(opener, step)
                break

    def _needed_for_script(self, opener: PathOpener, script: OpenedPath) -> Iterator[OpenedPath]:
        """The runtime that a script belongs to, or else its package or the sources next to it."""
        if not script.is_file:
            return
        needed = [*self._needed_files(opener, script)]
        is_runtime = [opened.path for opened in needed] != [script.path]
        yield from needed if is_runtime else script_files(opener, script, self._protected)

    def _default_interpreters(self, program: OpenedPath) -> Iterator[OpenedPath]:
        """The default interpreters that a program in a root may need. Its `#!` line, which the server can change, can only exclude some."""
        interpreter_name = self._interpreter_in_root(program)
        names = (*_PYTHONS, *_NODES)
        if interpreter_name.startswith("python"):
            names = _PYTHONS
        elif interpreter_name.startswith("node"):
            names = _NODES
        for name in names:
            interpreter = self.locate(name)
            if interpreter is not None and not self._is_root(interpreter):
                yield interpreter

    def _interpreter_in_root(self, program: OpenedPath) -> str:
        """The name of the interpreter of a program in a root; empty if it is not known. Links that leave the root are not followed."""
        with ExitStack() as scratch:
            opened = _open(PathOpener(scratch), self.path_in_sandbox(program), "follow")
            if opened is None or not opened.is_file or not is_within(opened.path, program.path):
                return ""
            return PurePath(_interpreter_word(opened)).name

    def _is_root(self, step: OpenedPath) -> bool:
        """Whether this is a root of any server. `PathOpener.open` stops there: the root then stands for the file below it."""
        return step in self._stop_at

    def _is_program(self, opener: PathOpener, opened: OpenedPath) -> bool:
        if self._is_root(opened):
            opened = opener.open_below(opened, opened.rest)
            return opened.is_link or _is_executable(opened)  # the link is followed inside the sandbox only
        if opened.is_link:
            target = opener.open(opened.link_target(), links="follow", start=opened.folder)
            return self._is_root(target) or _is_executable(target)
        return _is_executable(opened)

    def _needed_in_root(self, opener: PathOpener, step: OpenedPath) -> Iterator[OpenedPath]:
        """The program's file or link in another server's root. The server's own roots are mounted anyway."""
        if step.identity in self._untrusted.own:
            return
        try:
            program = opener.open_below(step, step.rest)
        except OSError:
            return
        if program.is_link or program.is_file:
            yield from self._needed_files(opener, program, follow_base=False)

    def _interpreter(self, script: OpenedPath) -> OpenedPath | None:
        """The interpreter in a `#!` line: an absolute path, `env NAME` or `env -S NAME`. Other forms are ignored."""
        word = _interpreter_word(script) if script.is_file else ""
        return self.locate(word) if word else None

    def _needed_files(
        self, opener: PathOpener, step: OpenedPath, *, follow_base: bool = True
    ) -> Iterator[OpenedPath]:
        """The file or link itself, or the runtime that it belongs to. With `follow_base`, also what that runtime is based on."""
        if (
            step.path.startswith(_SYSTEM_PREFIXES)
            or not (step.is_link or step.is_file)
            or step.folder is None
        ):
            return
        modules = [folder for folder in step.folder.self_and_parents() if folder.name == "node_modules"]
        parent = step.folder.folder if step.folder.name == "bin" else None
        prefix = opener.reopen(parent) if parent is not None and not modules else None
        if modules:
            yield opener.reopen(modules[-1])  # the outermost
        elif prefix is not None and _is_runtime(opener, prefix):
            yield from _runtime_parts(opener, prefix)
            if follow_base and self._scripts is not None:
                yield from self._editable_installs(opener, prefix)
            if follow_base and (base := self._base_installation(opener, prefix)):
                yield from _runtime_parts(opener, base)
        else:
            yield step

    def _editable_installs(self, opener: PathOpener, prefix: OpenedPath) -> Iterator[OpenedPath]:
        """The folders of the packages that a Python environment loads from elsewhere."""
        library = opener.child(prefix, "lib")
        if library is None or not library.is_folder:
            return
        for name in _python_folders(library):
            with suppress(OSError):
                site_packages = opener.open_below(library, (name, "site-packages"))
                if site_packages.is_folder:
                    yield from editable_folders(opener, site_packages, self._protected)

    def _base_installation(self, opener: PathOpener, prefix: OpenedPath) -> OpenedPath | None:
        """The installation that a Python environment is based on."""
        config = opener.child(prefix, "pyvenv.cfg")
        if config is None or not config.is_file:
            return None
        for line in config.read_start(_PYVENV_BYTES).decode(errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home" and value.strip().startswith("/"):
                home = _open(opener, value.strip(), "follow")
                if home is None or self._is_root(home) or home.name != "bin" or home.folder is None:
                    return None
                base = opener.reopen(home.folder)
                return base if _is_runtime(opener, base) else None
        return None


def _interpreter_word(script: OpenedPath) -> str:
    """The absolute path in a `#!` line, or the name after `env`; empty if there is neither."""
    line = script.read_start(_FIRST_LINE_BYTES).split(b"\n")[0]
    if not line.startswith(b"#!"):
        return ""
    words = os.fsdecode(line[2:]).split()
    if len(words) > 1 and PurePath(words[0]).name == "env":
        name = words[2] if words[1] == "-S" and len(words) > 2 else words[1]
        return "" if "/" in name or name.startswith("-") or "=" in name else name
    return words[0] if words and words[0].startswith("/") else ""


def _open(
    opener: PathOpener, path: str, links: SymlinkPolicy, start: OpenedPath | None = None
) -> OpenedPath | None:
    try:
        return opener.open(path, links=links, start=start)
    except (OSError, ValueError):  # ValueError: a NUL character
        return None


def _is_executable(opened: OpenedPath) -> bool:
    return opened.is_file and bool(opened.status.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))


def _runtime_parts(opener: PathOpener, prefix: OpenedPath) -> Iterator[OpenedPath]:
    for name in _RUNTIME_PARTS:
        part = opener.child(prefix, name)
        if part is not None and (part.is_link or (part.is_file if name == "pyvenv.cfg" else part.is_folder)):
            yield part


def _is_runtime(opener: PathOpener, prefix: OpenedPath) -> bool:
    if prefix.path in ("/", "/usr") or prefix.path.startswith(_SYSTEM_PREFIXES):
        return False
    return any(_exists(opener, prefix, *marker) for marker in _RUNTIME_MARKERS) or _has_python_library(
        opener, prefix
    )


def _has_python_library(opener: PathOpener, prefix: OpenedPath) -> bool:
    library = opener.child(prefix, "lib")
    if library is None or not library.is_folder:
        return False
    return any(_exists(opener, library, name, "os.py") for name in _python_folders(library))


def _python_folders(library: OpenedPath) -> list[str]:
    """The names of the folders `python3.…` in a `lib`."""
    try:
        descriptor = library.open_to_read()
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            names = [
                entry.name for entry in islice(entries, _MAX_LIB_ENTRIES) if entry.name.startswith("python3")
            ]
    finally:
        os.close(descriptor)
    return names[:_MAX_PYTHONS]


def _exists(opener: PathOpener, folder: OpenedPath, *names: str) -> bool:
    with ExitStack() as scratch:
        try:
            opened = PathOpener(scratch, opener.stop_at).open_below(folder, names)
        except OSError:
            return False
        return opened.is_file or opened.is_folder
