"""Collects the files of a program that are found through packages, manifests and imports."""

import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import PurePosixPath

from holdfast.resolve.collect_files import FileCollector
from holdfast.resolve.command_words import CODE_SUFFIXES, MAX_WORDS, PACKAGE_FILES, package_name, shell_words
from holdfast.resolve.manifests import mapped_files, package_scripts
from holdfast.resolve.program_imports import (
    JAVASCRIPT_MODULES,
    UNCHECKED,
    javascript_candidates,
    python_module_candidates,
)

_MAX_LOOK_UPS = 50_000  # at how many paths imported files are looked for
_PYTHON_MANIFESTS = (
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "hatch.toml",
    "pixi.toml",
    "Pipfile",
    "poe_tasks.toml",
)
_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "hatch_build.py", "pdm_build.py", "build.py")
# In a pyproject.toml, these keys name scripts of the build.
_BUILD_KEYS = ("custom", "hooks", "build", "script", "custom-hook")
_ENTRY_POINT = re.compile(r"[^\W\d][\w.]{0,300}:[\w.]{1,300}")  # `package.module:function`
MAX_FOLDERS = 100
"""How many folders a command may change into, and how many may be built."""

# For a word that is not a valid path, these functions return False; those of `pathlib` raise an error.
_exists, _is_folder, _is_file = os.path.exists, os.path.isdir, os.path.isfile
_parent = os.path.dirname


class PackageCollector:
    """Adds packages and imported files to a program."""

    def __init__(self, files: FileCollector) -> None:
        self._files = files
        self._project = files.project
        self._looked_up: set[str] = set()
        self._packages: set[str] = set()
        self._built: set[str] = set()

    def add_imported_file(self, path: str, *, runner: str = "") -> bool:
        """Add an imported file, if there is one at this path. Return False if too many paths were looked up."""
        path = path and os.path.normpath(path)
        if path == UNCHECKED:
            self._files.is_partial = True
        elif path not in self._looked_up:
            self._files.hashes.check_deadline(path)
            if len(self._looked_up) >= _MAX_LOOK_UPS:
                self._files.is_partial = True
                return False
            self._looked_up.add(path)
            if _is_file(path):
                self._files.is_partial |= not self._project.include_imported(path)
            self._files.add(path, runner=runner)
            for compiled in self._files.compiled_variants(path):
                self._files.add(compiled)
            if (
                path.endswith("/package.json")
                and os.path.relpath(path, self._files.folder) in self._files.files
            ):
                self._add_entry_points(_parent(path), name="")
        return True

    def add_package(self, name: str, base: str) -> None:
        """Add a package: the one in a folder, an installed one, or the script with this name in a manifest."""
        path = self._project.absolute(name, base)
        if self._project.has(path) and _is_folder(path):
            for file in PACKAGE_FILES:
                self._files.add(f"{path}/{file}")
            self._add_entry_points(path, name="")
            self._add_python_package(path)
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
            self._files.add(f"{base}/{file}")
        if (installed := f"{base}/node_modules/{bare}") and _is_file(f"{installed}/package.json"):
            self._add_entry_points(installed, name="")  # npx runs its only program under any name
        self._add_entry_points(base, name=command)

    def add_package_of(self, path: str) -> None:
        """Add the package.json of the package that a script belongs to, and the files that it maps names to."""
        folder = _parent(path)
        while self._project.is_below(folder) and not _exists(f"{folder}/package.json"):
            folder = _parent(folder)
        if folder in self._packages or not self._project.is_below(folder):
            return
        self._packages.add(folder)
        self._files.add(f"{folder}/package.json")
        for target in mapped_files(self._project.read_package(folder)):
            self.add_imported_file(UNCHECKED if "*" in target else self._project.absolute(target, folder))
            if "*" in target:  # any name in this folder, and perhaps below it
                mapped = self._project.absolute(_parent(target.partition("*")[0]), folder)
                self._files.add_sibling_modules(mapped, JAVASCRIPT_MODULES, with_content=True)

    def add_module(self, name: str, base: str) -> None:
        """Add a Python module that is imported by name."""
        for inner in (base, f"{base}/src"):
            for file in python_module_candidates(inner, name):
                self._files.add(file)
                self._files.is_partial |= file == UNCHECKED

    def add_build(self, folder: str) -> None:
        """Add what runs when a package in the project is built: its backend, and the local packages that its manifest names."""
        pending = [folder]
        while pending:
            folder = pending.pop()
            if folder in self._built:
                continue
            if len(self._built) >= MAX_FOLDERS:
                self._files.is_partial = True
                return
            self._built.add(folder)
            by_key = self._project.texts_by_key(f"{folder}/pyproject.toml")
            named = [path for text in _unique_texts(by_key) if (path := self._project.absolute(text, folder))]
            folders = [path for path in named if path != folder and self._project.has_folder(path)]
            for text in (text for key in _BUILD_KEYS for text in by_key.get(key, ())):
                self._files.hashes.check_deadline(folder)
                if PurePosixPath(text.strip()).suffix in CODE_SUFFIXES:
                    self._files.add(self._project.absolute(text.strip(), folder))
            for file in (f"{path}/{name}" for path in (folder, *folders) for name in _BUILD_FILES):
                self._files.add(file)
            for backend in by_key.get("build-backend", ()):
                for place in (folder, *folders):
                    self.add_module(backend.strip().partition(":")[0], place)
            pending += folders

    def _add_entry_points(self, folder: str, *, name: str) -> None:
        """Add the entry points in the manifests of a folder; with a name, only the script with this name."""
        package = self._project.read_package(folder)
        for text in package_scripts(package, name):
            self._files.add(f"{folder}/package.json")
            for path in javascript_candidates(self._project.absolute(text, folder)):
                if self._project.has(path) and _is_file(path):
                    self._files.add(path)
            self._files.queue_command(shell_words(text), folder)
        if name == "start":  # npm runs it if there is no script of this name
            self._files.add(f"{folder}/server.js")
        for manifest in _PYTHON_MANIFESTS if name else ():
            if texts := self._project.texts_by_key(f"{folder}/{manifest}").get(name):
                self._files.add(f"{folder}/{manifest}")
                for text in (" ".join(texts), *texts):
                    self._files.queue_command(shell_words(text), folder)

    def _add_python_package(self, folder: str) -> None:
        """Add the modules of a local package that its scripts name, and what runs when it is installed."""
        for manifest in _PYTHON_MANIFESTS:
            for text in _unique_texts(self._project.texts_by_key(f"{folder}/{manifest}")):
                if _ENTRY_POINT.fullmatch(text):
                    self._files.queue_command([text], folder)
        self.add_build(folder)


def _unique_texts(by_key: Mapping[str, Iterable[str]]) -> list[str]:
    """The texts in a manifest, each once."""
    texts = dict.fromkeys(text.strip() for texts in by_key.values() for text in texts)
    return [text for text in islice(texts, MAX_WORDS) if text]
