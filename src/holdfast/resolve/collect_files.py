"""Collects the files of a program: hashes each file once, and finds out in which languages to search it."""

import hashlib
import os
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from holdfast.model.real_path import StepBudget, follow_links, real_path
from holdfast.resolve.bytecode import SOURCE_SUFFIXES, mentions_bytecode
from holdfast.resolve.command_words import MAX_WORDS
from holdfast.resolve.file_hashes import MAX_SCANNED_BYTES, FileHashes
from holdfast.resolve.kernel_paths import names_kernel_path
from holdfast.resolve.manifests import task_words, without_quotes
from holdfast.resolve.program_imports import (
    COMPILED_SUFFIXES,
    PYTHON_MODULES,
    UNCHECKED,
    module_names,
    python_module_candidates,
)
from holdfast.resolve.project_folders import SYSTEM_PREFIXES, ProjectFolders
from holdfast.resolve.script_languages import Language, script_languages

MAX_FILES = 500

# For a word that is not a valid path, these functions return False; those of `pathlib` raise an error.
_exists, _is_folder = os.path.exists, os.path.isdir
_parent = os.path.dirname


class UnapprovedPartError(Exception):
    """A part of a program is new, or has changed since it was approved."""


class FileCollector:
    """Collects the files of one program, and keeps the commands and sources that are still to be searched."""

    def __init__(
        self, folder: str, hashes: FileHashes, approved: Mapping[str, Collection[str]] | None
    ) -> None:
        self.files: dict[str, str] = {}
        """The hash of each file, by its path in the project."""
        self.stamps: set[tuple[str, int, int]] = set()
        """The path, inode and change time of each file."""
        self.sibling_modules: set[str] = set()
        """The modules in the folders of sources, which an import may find."""
        self.is_partial = False
        """Whether some files could not be found, because there are too many or their names are computed."""
        self.package_sources: dict[str, None] = {}
        """The hosts from which packages are fetched, in order."""
        self.project = ProjectFolders(folder)
        self.folder = self.project.folder
        self.hashes = hashes
        self.to_scan: deque[tuple[str, bytes, frozenset[Language]]] = deque()
        """The sources whose imports are not searched yet: the path, the beginning, and the languages."""
        self.commands: deque[tuple[list[str], str]] = deque()
        """The commands that are not read yet, each with its folder."""
        self.python_sources: dict[str, None] = {}
        """The paths of all Python sources, in order."""
        self.reads_bytecode = False
        """Whether Python may run compiled modules in a `__pycache__` of the project."""
        self._approved = approved
        self._listed: set[tuple[str, tuple[str, ...], bool]] = set()
        self._languages: dict[str, frozenset[Language]] = {}
        self._seen_commands: set[tuple[str, ...]] = set()
        self._compiled: dict[str, list[str]] = {}

    def add(self, path: str, *, runner: str = "") -> None:
        """Hash a file of the project, if there is one at this path. `runner` is the program that runs it, if known."""
        if not os.path.lexists(path) or _is_folder(path) or not self.project.has(path):
            return
        relative = os.path.relpath(path, self.folder)
        if relative in self.files:
            if runner and path in self._languages:
                self._search(path, self.hashes.read(path)[1], runner)
            return
        if len(self.files) >= MAX_FILES:
            self.is_partial = True
            return
        self.project.check_link(path)
        real, passed = real_path(path), follow_links(path, StepBudget()).passed
        self.python_sources.update((place, None) for place in (path, real) if place.endswith(SOURCE_SUFFIXES))
        # Of a link to a system file, only the target's path is hashed, because system updates change the content.
        if real.startswith(SYSTEM_PREFIXES) and not self.project.is_below(real):
            self.files[relative] = hashlib.sha256(b"link to " + os.fsencode(real)).hexdigest()
            self._check_approved(relative, self.files[relative])
            self._add_way(passed)
            return
        start = self._hash(path, relative)
        self._add_way(passed)
        if not self.project.is_below(real):  # its folder must be read-only for confined servers, too
            self.is_partial |= not self.project.include_imported(real)
            self.add(real, runner=runner)
        self.reads_bytecode |= path.endswith(SOURCE_SUFFIXES) and mentions_bytecode(start)
        if start.startswith(b"#!"):
            self.queue_command(start[2:].partition(b"\n")[0].decode(errors="replace").split(), self.folder)
        self._search(path, start, runner)

    def queue_command(self, words: list[str], folder: str) -> None:
        """Read these words later as another command of the program."""
        self.is_partial |= len(words) > MAX_WORDS
        words = words[:MAX_WORDS]
        if (command := (folder, *words)) in self._seen_commands:
            return
        if len(self._seen_commands) >= MAX_FILES:
            self.is_partial = True
            return
        self._seen_commands.add(command)
        self.commands.append((words, folder))

    def add_sibling_modules(
        self, folder: str, suffixes: tuple[str, ...], *, with_content: bool = False
    ) -> None:
        """Add the names of all modules with these suffixes in a folder.

        Compiled modules, and modules with a name of the standard library, are also hashed. With `with_content`, all are: a source in
        the folder may load them by a computed name.
        """
        if (folder, suffixes, with_content) in self._listed or not self.project.has_folder(folder):
            return
        self._listed.add((folder, suffixes, with_content))
        for name in module_names(folder, suffixes):
            self.hashes.check_deadline(folder)
            if name == UNCHECKED:
                self.is_partial = True
                continue
            module = name.rstrip("/").partition(".")[0]
            relative = os.path.relpath(f"{folder}/{name}", self.folder) + "/" * name.endswith("/")
            self._check_approved(relative)
            self.sibling_modules.add(relative)
            if name.endswith(COMPILED_SUFFIXES) or (with_content and not name.endswith("/")):
                self.add(f"{folder}/{name}")
            elif module in sys.stdlib_module_names:
                for file in python_module_candidates(folder, module):
                    self.add(file)

    def _add_way(self, passed: Iterable[str]) -> None:
        """Add the links and folders outside of the project that lead to a file: they decide which file it is."""
        for place in passed:
            if self.project.is_below(place) or place.startswith((*SYSTEM_PREFIXES, "/etc/")):
                continue
            relative = os.path.relpath(place, self.folder)
            if os.path.islink(place):  # noqa: PTH114 - a name, not a path yet
                target = os.fsencode(os.readlink(place))  # noqa: PTH115 - a name, not a path yet
                self.files[relative] = hashlib.sha256(b"link to " + target).hexdigest()
            else:
                relative = f"{relative}/"
                self.files[relative] = hashlib.sha256(b"folder").hexdigest()
            self._check_approved(relative, self.files[relative])

    def compiled_variants(self, path: str) -> list[str]:
        """For `x.so`: the modules `x.cpython-313-x86_64-linux-gnu.so` and the like, which Python prefers to `x.py`."""
        if not path.endswith(".so") or path.endswith(".abi3.so"):
            return []
        folder, name = _parent(path), PurePosixPath(path).stem
        if folder not in self._compiled:
            names = [*module_names(folder, PYTHON_MODULES)] if self.project.has_folder(folder) else []
            self.is_partial |= UNCHECKED in names
            self._compiled[folder] = [each for each in names if each.endswith(".so")]
        return [f"{folder}/{each}" for each in self._compiled[folder] if each.startswith(f"{name}.")]

    def _search(self, path: str, start: bytes, runner: str) -> None:
        """Search a file for the files that it runs, in each language that it may be in."""
        languages = script_languages(path, start, runner)
        self.is_partial |= bool(languages) and (len(start) >= MAX_SCANNED_BYTES or b"\0" in start)
        languages -= self._languages.get(path, frozenset())
        self._languages[path] = languages | self._languages.get(path, frozenset())
        if Language.SHELL in languages:
            self._queue_script(path, start)
        if languages - {Language.SHELL}:
            # Python and Node look for imports in the folder of the link's target.
            for place in dict.fromkeys((path, real_path(path))):
                self.to_scan.append((place, start, languages))

    def _queue_script(self, path: str, start: bytes) -> None:
        """Queue the words of a shell script as commands. A computed folder is left out: `"$DIR/server.js"` is `server.js`."""
        text = start.decode(errors="replace").replace("\\\n", " ").replace("\0", "")  # shells skip NUL
        self.is_partial |= names_kernel_path(text)
        for each in (text, without_quotes(text)):
            words = [
                word.partition("/")[2] if word.startswith(("$", "/")) and not _exists(word) else word
                for word in task_words(each)
            ]
            for folder in dict.fromkeys((self.folder, _parent(path))):
                if self.project.has(folder):
                    self.queue_command([word for word in words if word], folder)

    def _hash(self, path: str, relative: str) -> bytes:
        self.files[relative], start, status = self.hashes.read(path)
        self.stamps.add((path, status.st_ino, status.st_ctime_ns))
        self._check_approved(relative, self.files[relative])
        return start

    def _check_approved(self, part: str, digest: str = "") -> None:
        """Raise unless the part is approved; with a digest, unless this version of it is."""
        if self._approved is None:
            return
        approved = self._approved.get(part, ())
        if not approved or (digest and digest not in approved):
            raise UnapprovedPartError(part)
