"""Collects the files that a command runs."""

import errno
import os
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import PurePosixPath

from holdfast.model.folder_tree import walk_folders
from holdfast.model.untrusted_file import UnusableFileError
from holdfast.resolve.bytecode import is_bytecode_elsewhere
from holdfast.resolve.collect_files import MAX_FILES, FileCollector
from holdfast.resolve.collect_packages import MAX_FOLDERS, PackageCollector
from holdfast.resolve.command_words import (
    CODE_SUFFIXES,
    DATA_SUFFIXES,
    NPM_SETTINGS_FILES,
    PACKAGE_SOURCE_FILES,
    SETTINGS_SUFFIXES,
    TASK_FILES,
    VERSION_FILES,
    NamedCode,
    NamedFile,
    NamedModule,
    NamedPackage,
    base_folders,
    builds_project,
    find_named_items,
    has_too_many_words,
    imports_from_working_folder,
    is_manifest,
    launcher_files,
    names_files_by_pattern,
    problem_with_workspace_option,
    reads_import_maps,
    runs_task_files,
    source_suffixes,
    tool_settings,
    words_in_code,
)
from holdfast.resolve.file_hashes import MAX_SCANNED_BYTES
from holdfast.resolve.manifests import (
    included_files,
    maps_prefixes,
    package_sources,
    problem_with_npm_settings,
    problem_with_version_file,
    task_words,
    without_quotes,
)
from holdfast.resolve.program_imports import (
    JAVASCRIPT_MODULES,
    PYTHON_MODULES,
    import_candidates,
    javascript_candidates,
    loads_computed_names,
)
from holdfast.resolve.script_languages import Language

_MAX_SOURCE_ENTRIES = 50_000  # how many files and folders may be below a folder that is searched for sources
# A task file may include files with these suffixes.
_TASK_SUFFIXES = (".mk", ".make", ".mak", ".just", ".yml", ".yaml", ".rake")
_MODULE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){0,31}")
_OTHER_SUFFIXES = (".rb", ".lua", ".pl", ".php")  # interpreters add them: `ruby -r./hook`
_NOT_IMPORTED = ("__pycache__", "node_modules")  # `bytecode` decides about `__pycache__`
# Python looks for the plug-ins of installed packages in each folder of the `PYTHONPATH`, too.
_MODULES_AND_PLUGINS = (*PYTHON_MODULES, "entry_points.txt", ".egg", ".egg-link")
_COMPUTED_NAME = re.compile(r"[$*?%]")

# For a word that is not a valid path, these functions return False; those of `pathlib` raise an error.
_exists, _is_folder, _is_file = os.path.exists, os.path.isdir, os.path.isfile
_parent, _size = os.path.dirname, os.path.getsize


class CommandCollector:
    """Adds the files that commands run to a program."""

    def __init__(
        self,
        files: FileCollector,
        packages: PackageCollector,
        *,
        has_version_manager: bool,
        module_folders: Sequence[str] = (),
    ) -> None:
        self._files = files
        self._project = files.project
        self._packages = packages
        self._has_version_manager = has_version_manager
        self._module_folders = module_folders
        self._task_files: set[tuple[str, str]] = set()

    def add_command(self, argv: Sequence[str], folder: str) -> list[str]:
        """Add what a command in this folder runs. Return this folder, and those that the command changes into."""
        self._files.is_partial |= bool(problem_with_workspace_option(argv)) or has_too_many_words(argv)
        bases = [folder]
        for word in base_folders(argv):
            for base in [*bases]:  # `cd a && cd b`
                path = self._project.absolute(word, base)
                self._project.include_outside_folder(word, path)
                if self._project.has_folder(path) and path not in bases:
                    bases.append(path)
            if len(bases) > MAX_FOLDERS:
                raise UnusableFileError(
                    errno.EFBIG, f"one of more than {MAX_FOLDERS} folders to change into; use fewer", word
                )
        self._files.reads_bytecode |= not is_bytecode_elsewhere(
            argv, lambda name: self._has_module(name, (*bases, *self._module_folders)), folder
        )
        for base in bases:
            self._add_named(argv, base)
            if names_files_by_pattern(argv):
                self._add_all_scripts(base)
            for word in argv:
                if word.startswith("@"):  # a file with more arguments
                    self._files.queue_command(
                        self._project.read_manifest(self._project.absolute(word[1:], base)).split(),
                        base,
                    )
            if imports_from_working_folder(argv):
                self._files.add_sibling_modules(base, PYTHON_MODULES)
            if suffixes := source_suffixes(argv):
                self._add_sources(base, suffixes)
        return bases

    def _add_all_scripts(self, folder: str) -> None:
        """Add all code directly in a folder, because a name that the shell computes may stand for any of it."""
        self._files.is_partial = True
        for path in _files_in(folder):
            suffix = PurePosixPath(path).suffix.lower()
            if suffix in CODE_SUFFIXES - SETTINGS_SUFFIXES or os.access(path, os.X_OK):
                self._files.add(path)

    def add_module_folder(self, folder: str) -> None:
        """Add all Python modules in a folder that `PYTHONPATH` names, and below it. Each Python that the command starts may import them."""
        if not self._project.has_folder(folder):
            if _exists(folder):
                raise UnusableFileError(
                    errno.ENOTDIR, "in the PYTHONPATH, but not a folder; remove it there", folder
                )
            return
        entries = 0
        for inner, folders, names in walk_folders(folder):
            self._files.hashes.check_deadline(inner)
            if linked := _linked_folder(inner):
                raise UnusableFileError(
                    errno.ELOOP, "a link to a folder, in a folder of the PYTHONPATH; remove it", linked
                )
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and name not in _NOT_IMPORTED
            )
            entries += len(folders) + len(names)
            found = [f"{inner}/{name}" for name in names if name.endswith(_MODULES_AND_PLUGINS)]
            if entries > _MAX_SOURCE_ENTRIES or len(self._files.files) + len(found) > MAX_FILES:
                raise UnusableFileError(
                    errno.EFBIG,
                    "too large to check all Python modules in it; let PYTHONPATH name a smaller folder, such as src",
                    folder,
                )
            for path in sorted(found):
                self._files.add(path)

    def _add_named(self, argv: Sequence[str], base: str) -> None:
        self._add_launcher_files(argv, base)
        has_task_files, has_import_maps = runs_task_files(argv), reads_import_maps(argv)
        for named in find_named_items(argv):
            self._files.hashes.check_deadline(base)
            match named:
                case NamedFile(path=path, is_program=is_program, runner=runner):
                    absolute = self._project.absolute(path, base)
                    self._project.include_outside_folder(path, absolute)
                    self._add_named_file(absolute, is_program=is_program, runner=runner)
                    suffix = PurePosixPath(path).suffix
                    is_import_map = has_import_maps and suffix in (".json", ".jsonc")
                    is_task_file = PurePosixPath(path).name in TASK_FILES  # `node --env-file=.env`
                    if is_import_map or is_task_file or (has_task_files and suffix not in DATA_SUFFIXES):
                        self._add_task_file(absolute, base)
                case NamedModule(name=name):
                    self._packages.add_module(name, base)
                case NamedPackage(name=name):
                    self._packages.add_package(name, base)
                case NamedCode(text=text):
                    self._add_inline_code(text, base)

    def _add_named_file(self, path: str, *, is_program: bool, runner: str) -> None:
        if not self._project.has(path):
            return
        if is_program:  # JavaScript runtimes add a suffix to the name, as they do for imports
            self._files.add(path, runner=runner)
            for candidate in (
                *javascript_candidates(path),
                *(f"{path}{suffix}" for suffix in _OTHER_SUFFIXES),
            ):
                self._packages.add_imported_file(candidate)
        elif (
            PurePosixPath(path).suffix.lower() in CODE_SUFFIXES
            or is_manifest(PurePosixPath(path).name)
            or os.access(path, os.X_OK)
        ):
            self._files.add(path)
        venv = _parent(_parent(path))
        self._files.add(f"{venv}/pyvenv.cfg")  # if it is a virtual environment

    def _add_inline_code(self, text: str, base: str) -> None:
        """Add the modules and files that code in the command names: `python -c 'import server'`, `node -e 'require("./x")'`."""
        source, languages = text.encode(errors="replace"), (Language.PYTHON, Language.JAVASCRIPT)
        if loads_computed_names(source, languages):
            self._files.is_partial = True
            for suffixes in (PYTHON_MODULES, JAVASCRIPT_MODULES):
                self._files.add_sibling_modules(base, suffixes, with_content=True)
        for path in import_candidates(f"{base}/code", source, languages, (base, f"{base}/src")):
            self._packages.add_imported_file(path)
        for word in dict.fromkeys(words_in_code(text)):
            self._files.hashes.check_deadline(base)
            if _MODULE_NAME.fullmatch(word):  # `importlib.import_module("server")`
                self._packages.add_module(word, base)
            path = self._project.absolute(word, base)
            if self._project.has(path) and PurePosixPath(path).suffix not in DATA_SUFFIXES:
                self._files.add(path)

    def _add_launcher_files(self, argv: Sequence[str], base: str) -> None:
        if builds_project(argv):
            self._packages.add_build(base)
        managed = VERSION_FILES if self._has_version_manager else ()
        for name in dict.fromkeys((*launcher_files(argv), *managed)):
            for path in _files_in(f"{base}/{name}") if name.endswith("/") else (f"{base}/{name}",):
                if path.removeprefix(f"{base}/") in TASK_FILES:
                    self._add_task_file(path, base)
                else:
                    self._files.add(path)
            self._check_settings(name, base)
        for name in tool_settings(argv):
            path = f"{base}/{name}"
            if self._project.has(path) and _is_file(path) and _size(path) <= MAX_SCANNED_BYTES:
                self._add_task_file(path, base)
            elif _is_file(path):
                self._files.add(path)
                self._files.is_partial = True

    def _check_settings(self, name: str, base: str) -> None:
        """Raise if a settings file decides what runs. Remember the hosts from which it lets packages be fetched."""
        path = f"{base}/{name}"
        problem = ""
        if name in NPM_SETTINGS_FILES:
            problem = problem_with_npm_settings(self._project.read_manifest(path))
        elif name in VERSION_FILES:
            text = self._project.read_manifest(path)
            problem = problem_with_version_file(path, text, lambda word: _exists(f"{base}/{word}"))
        if problem:
            raise UnusableFileError(errno.EPERM, problem, path)
        if name in PACKAGE_SOURCE_FILES:
            self._files.package_sources.update(
                dict.fromkeys(package_sources(self._project.read_manifest(path)))
            )

    def _add_task_file(self, path: str, base: str) -> None:
        """Add a file with commands, the task files that it includes, and every file that these name."""
        pending = [path]
        while pending and (path := pending.pop()):
            if (path, base) in self._task_files or not self._project.has(path) or not _is_file(path):
                continue
            self._task_files.add((path, base))
            self._files.add(path)
            text = self._project.read_manifest(path)
            words, included = task_words(text), {*included_files(text)}
            self._files.queue_command(words, base)
            self._files.queue_command(unquoted := task_words(without_quotes(text)), base)
            self._files.is_partial |= any(_COMPUTED_NAME.search(word) for word in included) or maps_prefixes(
                text
            )
            for word in dict.fromkeys((*words, *unquoted)):
                self._files.hashes.check_deadline(path)
                named = self._project.absolute(word, base)
                is_extended = '"extends"' in text and word.endswith(".json")  # in a tsconfig.json
                if word in included or is_extended or PurePosixPath(word).suffix in _TASK_SUFFIXES:
                    pending.append(named)
                if not self._project.has(named):
                    continue
                self._files.add(named)
                if _is_folder(named):  # `build: ./server` in a compose file, `make -C server`
                    pending += (f"{named}/{name}" for name in TASK_FILES if _is_file(f"{named}/{name}"))

    def _add_sources(self, folder: str, suffixes: tuple[str, ...]) -> None:
        """Add all files with these suffixes in a folder and below it."""
        entries = 0
        for inner, folders, names in walk_folders(folder):
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and name != "node_modules"
            )
            self._files.hashes.check_deadline(inner)
            entries += len(folders) + len(names)
            found = [f"{inner}/{name}" for name in names if name.endswith(suffixes)]
            if entries > _MAX_SOURCE_ENTRIES or len(self._files.files) + len(found) > MAX_FILES:
                raise UnusableFileError(
                    errno.EFBIG,
                    "too large to check all sources in it; build the server, and write the path of the built program",
                    folder,
                )
            for path in sorted(found):
                self._files.add(path)

    def _has_module(self, name: str, bases: Iterable[str]) -> bool:
        """Whether Python finds a module in the project when it is started in one of these folders."""
        places = (f"{base}/{name.replace('.', '/')}" for base in bases)
        return any(_is_file(f"{place}.py") or _is_file(f"{place}/__main__.py") for place in places)


def _linked_folder(folder: str) -> str:
    """The path of a link to a folder, directly in a folder, under a name that Python can import; empty if there is none."""
    try:
        with os.scandir(folder) as entries:
            linked = (entry for entry in entries if entry.is_symlink() and entry.is_dir())
            return next(
                (each.path for each in linked if each.name not in _NOT_IMPORTED and each.name[0] != "."), ""
            )
    except OSError:
        return ""


def _files_in(folder: str) -> list[str]:
    """The paths of all files directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in islice(entries, MAX_FILES + 1) if not entry.is_dir())
    except OSError:
        return []
