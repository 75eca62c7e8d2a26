"""The program that a server's command runs, as far as it lies in the project: which files, and a hash of each."""

import errno
import hashlib
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

import msgspec

from holdfast.model.json import Json
from holdfast.model.untrusted_file import UnusableFileError, open_untrusted_file
from holdfast.resolve.program_imports import imported_files, module_files
from holdfast.resolve.program_words import (
    CODE_SUFFIXES,
    PACKAGE_FILES,
    NamedFile,
    NamedModule,
    NamedPackage,
    base_folders,
    manifests,
    named_by,
    package_name,
)

MAX_FILES = 500
MAX_BYTES = 128 * 1024 * 1024
_MAX_SCANNED = 256 * 1024  # of each file: what is read to find imports and scripts
_MAX_LOOK_UPS = 50_000  # of files that a source may import
_BLOCK_BYTES = 256 * 1024
# What links lead to here is not the project's. It changes with each update of the system.
_SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/", "/nix/", "/snap/")

# A word of a command may be no path at all: these functions answer False for it, those of `pathlib` raise an error.
_is_folder, _is_file, _join, _parent = os.path.isdir, os.path.isfile, os.path.join, os.path.dirname


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The files of a project that a command names, and those that these import."""

    files: Mapping[str, str]
    """The hash of each file, by its path in the project."""
    stamps: frozenset[tuple[str, int, int]] = frozenset()
    """The path, inode and time of change of each file: they tell if a file was replaced and put back."""
    problem: str = ""
    """Why the program cannot be checked; empty if it can."""
    is_partial: bool = False
    """Whether it imports more files than are checked."""

    @property
    def digest(self) -> str:
        """A hash of all files. Empty if the command names no file of the project."""
        if not self.files:
            return ""
        return hashlib.sha256(msgspec.json.encode(sorted(self.files.items()))).hexdigest()


def read_program(argv: Sequence[str], folder: str, search_path: str = "") -> Program:
    """Read the program of a command that is run in this folder. Blocks; a file that is not regular or too large is a problem."""
    reader = _Reader(folder)
    try:
        reader.read(argv, search_path)
    except UnusableFileError as error:
        return Program(files=reader.files, problem=f"{_shorten(error.filename)} is {error.strerror}")
    except OSError as error:
        return Program(files=reader.files, problem=f"{_shorten(error.filename)}: {error.strerror}")
    return Program(files=reader.files, stamps=frozenset(reader.stamps), is_partial=reader.is_partial)


def _shorten(path: object) -> str:
    return str(path)[-200:]


class _Reader:
    """Collects the files of one program."""

    def __init__(self, folder: str) -> None:
        self.files: dict[str, str] = {}
        self.stamps: set[tuple[str, int, int]] = set()
        self.is_partial = False
        self._folder = os.path.realpath(folder)
        self._bytes_left = MAX_BYTES
        self._look_ups_left = _MAX_LOOK_UPS
        self._to_scan: deque[tuple[str, bytes]] = deque()

    def read(self, argv: Sequence[str], search_path: str) -> None:
        argv = [_found_in_path(argv[0], search_path), *argv[1:]] if argv else []
        bases = [self._folder, *filter(self._is_own_folder, map(self._absolute, base_folders(argv)))]
        for base in dict.fromkeys(bases):
            self._add_named(argv, base)
        roots = [*bases, *(f"{base}/src" for base in bases)]
        roots += [_parent(path) for path, _ in self._to_scan]
        while self._to_scan:
            path, start = self._to_scan.popleft()
            for imported in islice(imported_files(path, start, dict.fromkeys(roots)), self._look_ups_left):
                self._look_ups_left -= 1
                self._add(os.path.normpath(imported))
        self.is_partial |= not self._look_ups_left

    def _add_named(self, argv: Sequence[str], base: str) -> None:
        for name in manifests(argv):
            self._add(f"{base}/{name}")
        for named in named_by(argv):
            match named:
                case NamedFile(path=path, is_program=is_program):
                    self._add_named_file(self._absolute(path, base), is_program=is_program)
                case NamedModule(name=name):
                    for inner in (base, f"{base}/src"):
                        for file in module_files(PurePosixPath(inner), name):
                            self._add(file)
                case NamedPackage(name=name):
                    self._add_package(name, base)

    def _add_named_file(self, path: str, *, is_program: bool) -> None:
        if not self._contains(path):
            return
        if is_program or PurePosixPath(path).suffix.lower() in CODE_SUFFIXES or os.access(path, os.X_OK):
            self._add(path)
        venv = _parent(_parent(path))
        self._add(f"{venv}/pyvenv.cfg")  # if it is a virtual environment

    def _add_package(self, name: str, base: str) -> None:
        """Add a folder that is named as a package, or what a bare name stands for: an installed package, a script of a manifest."""
        path = self._absolute(name, base)
        if self._contains(path) and _is_folder(path):
            for file in PACKAGE_FILES:
                self._add(f"{path}/{file}")
            self._add_entry_points(path, name="")
            return
        bare = package_name(name)
        if not bare or ".." in bare.split("/") or bare.startswith("/"):
            return
        command = bare.rpartition("/")[2]
        for file in (
            f"node_modules/.bin/{command}",
            f"node_modules/{bare}/package.json",
            f".venv/bin/{command}",
        ):
            self._add(f"{base}/{file}")
        self._add_entry_points(base, name=command)

    def _add_entry_points(self, folder: str, *, name: str) -> None:
        """Add what a manifest in the folder says to run; with a name, only if the manifest has a script of this name."""
        package = self._read_start(f"{folder}/package.json")
        for text in _package_scripts(package, name):
            self._add(f"{folder}/package.json")
            for word in (text, *text.split()):
                path = self._absolute(word, folder)
                if self._contains(path) and _is_file(path):
                    self._add(path)
        script = re.search(
            rb"^[ \t]*[\"']?" + re.escape(name).encode() + rb"[\"']?[ \t]*=[ \t]*[\"']([\w.]+):",
            self._read_start(f"{folder}/pyproject.toml") if name else b"",
            re.MULTILINE,
        )
        if script is not None:
            self._add(f"{folder}/pyproject.toml")
            for inner in (folder, f"{folder}/src"):
                for file in module_files(PurePosixPath(inner), script[1].decode("ascii", "replace")):
                    self._add(file)

    def _add(self, path: str) -> None:
        """Hash a file of the project, if there is one at this path."""
        if not os.path.lexists(path) or _is_folder(path) or not self._contains(path):
            return
        relative = os.path.relpath(path, self._folder)
        if relative in self.files:
            return
        if len(self.files) >= MAX_FILES:
            self.is_partial = True
            return
        real = os.path.realpath(path)
        if real.startswith(_SYSTEM_FOLDERS) and not self._is_inside(real):
            self.files[relative] = hashlib.sha256(b"link to " + os.fsencode(real)).hexdigest()
            return
        self.files[relative], start = self._hash(path)
        self._to_scan.append((path, start))

    def _hash(self, path: str) -> tuple[str, bytes]:
        found, start = hashlib.sha256(), b""
        descriptor = open_untrusted_file(path)
        try:
            status = os.fstat(descriptor)
            self.stamps.add((path, status.st_ino, status.st_ctime_ns))
            self._check_size(path, status.st_size)
            while block := os.read(descriptor, _BLOCK_BYTES):
                self._check_size(path, len(block))
                self._bytes_left -= len(block)
                found.update(block)
                start = start or block
        finally:
            os.close(descriptor)
        return found.hexdigest(), start[:_MAX_SCANNED]

    def _check_size(self, path: str, size: int) -> None:
        if size > self._bytes_left:
            raise UnusableFileError(errno.EFBIG, f"too large (more than {MAX_BYTES} bytes in all)", path)

    def _read_start(self, path: str) -> bytes:
        if not self._contains(path) or not _is_file(path):
            return b""
        descriptor = open_untrusted_file(path)
        try:
            return os.read(descriptor, _MAX_SCANNED)
        finally:
            os.close(descriptor)

    def _absolute(self, path: str, base: str = "") -> str:
        if "\0" in path or len(path) > 4096:
            return ""
        return os.path.normpath(_join(base or self._folder, path))

    def _contains(self, path: str) -> bool:
        """Whether the path lies in the project, as it is written or after its links are followed."""
        return bool(path) and (self._is_inside(path) or self._is_inside(os.path.realpath(path)))

    def _is_own_folder(self, path: str) -> bool:
        return self._contains(path) and _is_folder(path)

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self._folder.rstrip("/") + "/") or path == self._folder


def _found_in_path(command: str, search_path: str) -> str:
    return command if "/" in command else shutil.which(command, path=search_path) or command


def _package_scripts(package: bytes, name: str) -> Iterator[str]:
    """The commands and files that a package.json names; with a name, only those of the script or program of this name."""
    try:
        content: Json = msgspec.json.decode(package) if package else None
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    programs = content.get("bin")
    if isinstance(programs, str):
        if not name or package_name(str(content.get("name"))).endswith(name):
            yield programs
    else:
        yield from _texts(programs, name)
    if name:
        for prefix in ("pre", "", "post"):
            yield from _texts(content.get("scripts"), f"{prefix}{name}")
    else:
        for key in ("main", "module", "exports"):
            yield from _texts(content, key)


def _texts(named: Json, name: str) -> Iterator[str]:
    """The texts of an object; with a name, only the one of this name."""
    for key, value in named.items() if isinstance(named, dict) else ():
        if isinstance(value, str) and (not name or key == name):
            yield value


def describe_change(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Which files changed, in a few words: `server.py changed, json.py is new`."""
    changed = [f"{path} changed" for path in now if path in before and before[path] != now[path]]
    new = [f"{path} is new" for path in now if path not in before]
    gone = [f"{path} is gone" for path in before if path not in now]
    told = [*changed, *new, *gone]
    return ", ".join(told[:5]) + (f" and {len(told) - 5} more" if len(told) > 5 else "")
