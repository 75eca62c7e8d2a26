"""Find the files of a project that a server's command runs, and hash each of them."""

import errno
import hashlib
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath

from holdfast.model.folder_tree import walk_folders
from holdfast.model.real_path import real_path
from holdfast.model.search_path import absolute_search_path
from holdfast.model.untrusted_file import UnusableFileError
from holdfast.resolve.bytecode import (
    SOURCE_SUFFIXES,
    compiled_modules,
    is_bytecode_elsewhere,
    mentions_bytecode,
)
from holdfast.resolve.command_words import (
    CODE_SUFFIXES,
    DATA_SUFFIXES,
    MAX_WORDS,
    NPM_SETTINGS_FILES,
    PACKAGE_FILES,
    PACKAGE_SOURCE_FILES,
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
    package_name,
    problem_with_missing_script,
    problem_with_workspace_option,
    reads_import_maps,
    runs_task_files,
    shell_words,
    source_suffixes,
    tool_settings,
    words_in_code,
)
from holdfast.resolve.file_hashes import MAX_SCANNED_BYTES, FileHashes
from holdfast.resolve.manifests import (
    included_files,
    mapped_files,
    maps_prefixes,
    package_scripts,
    package_sources,
    problem_with_npm_settings,
    problem_with_version_file,
    task_words,
    without_quotes,
)
from holdfast.resolve.program import Program, quote_path
from holdfast.resolve.program_imports import (
    COMPILED_SUFFIXES,
    PYTHON_MODULES,
    UNCHECKED,
    added_search_folders,
    import_candidates,
    javascript_candidates,
    module_names,
    module_suffixes,
    python_module_candidates,
)
from holdfast.resolve.project_folders import SYSTEM_PREFIXES, ProjectFolders
from holdfast.resolve.script_kinds import Kind, script_kinds
from holdfast.resolve.version_managers import has_version_manager

MAX_FILES = 500
_MAX_LOOK_UPS = 50_000  # paths at which an imported file may be
_MAX_SOURCE_ENTRIES = 50_000  # in all folders that are searched for sources
_TOML_MANIFESTS = (
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "hatch.toml",
    "pixi.toml",
    "Pipfile",
    "poe_tasks.toml",
)
_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "hatch_build.py", "pdm_build.py", "build.py")
_BUILD_KEYS = (
    "custom",
    "hooks",
    "build",
    "script",
    "custom-hook",
)  # in a pyproject.toml, they name scripts of the build
_TASK_SUFFIXES = (".mk", ".make", ".mak", ".just", ".yml", ".yaml", ".rake")  # they may be included
_MODULE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){0,31}")
_ENTRY_POINT = re.compile(r"[^\W\d][\w.]{0,300}:[\w.]{1,300}")  # `package.module:function`
_OTHER_SUFFIXES = (".rb", ".lua", ".pl", ".php")  # interpreters add them: `ruby -r./hook`
_NOT_SOURCES = (
    ".json",
    ".node",
    ".wasm",
    *COMPILED_SUFFIXES,
)  # Node runs an imported file with any other suffix
_COMPUTED_NAME = re.compile(r"[$*?%]")
_MAX_FOLDERS = 100  # that a command changes into, and that are built

# For a word that is not a valid path, these functions return False; those of `pathlib` raise an error.
_exists, _is_folder, _is_file = os.path.exists, os.path.isdir, os.path.isfile
_parent, _size = os.path.dirname, os.path.getsize


def read_program(
    argv: Sequence[str],
    folder: str,
    search_path: str = "",
    *,
    hashes: FileHashes | None = None,
    approved: Mapping[str, Collection[str]] | None = None,
) -> Program:
    """Read the program of a command that runs in this folder. Blocks. `Program.problem` says if a file cannot be read.

    `approved` holds the approved hashes of each part. If it is given, reading stops at the first part that is not
    approved. So only files that a person approved are searched for imports.
    """
    reader = _Reader(folder, hashes or FileHashes(), approved)
    try:
        reader.read(argv, search_path)
    except _UnapprovedPartError as error:
        return Program(files=reader.files, unapproved_part=str(error))
    except UnusableFileError as error:
        return Program(files=reader.files, problem=f"{_quote(error.filename)} is {error.strerror}")
    except OSError as error:
        return Program(files=reader.files, problem=f"{_quote(error.filename)}: {error.strerror}")
    return Program(
        files=reader.files,
        problem=problem_with_workspace_option(argv)
        or ("" if reader.files else problem_with_missing_script(argv)),
        stamps=frozenset(reader.stamps),
        is_partial=reader.is_partial,
        sibling_modules=frozenset(reader.sibling_modules),
        package_sources=tuple(reader.package_sources),
    )


def _quote(path: object) -> str:
    return quote_path(str(path)[-200:])


class _UnapprovedPartError(Exception):
    """A part of a program is new, or has changed since it was approved."""


class _Reader:
    """Collects the files of one program."""

    def __init__(
        self, folder: str, hashes: FileHashes, approved: Mapping[str, Collection[str]] | None
    ) -> None:
        self.files: dict[str, str] = {}
        self.stamps: set[tuple[str, int, int]] = set()
        self.sibling_modules: set[str] = set()
        self._listed: set[tuple[str, tuple[str, ...]]] = set()
        self.is_partial = False
        self._project = ProjectFolders(folder)
        self._folder = self._project.folder
        self._hashes = hashes
        self._approved = approved
        self._looked_up: set[str] = set()
        self._to_scan: deque[tuple[str, bytes, frozenset[Kind]]] = deque()
        self._kinds: dict[str, frozenset[Kind]] = {}
        self._commands: deque[tuple[list[str], str]] = deque()
        self._seen_commands: set[tuple[str, ...]] = set()
        self._packages: set[str] = set()
        self._task_files: set[tuple[str, str]] = set()
        self._built: set[str] = set()
        self._python_sources: dict[str, None] = {}
        self._reads_bytecode = False
        self._compiled: dict[str, list[str]] = {}
        self._has_version_manager = False
        self.package_sources: dict[str, None] = {}

    def read(self, argv: Sequence[str], search_path: str) -> None:
        argv = [_find_in_path(argv[0], search_path), *argv[1:]] if argv else []
        self.is_partial |= names_files_by_pattern(argv)
        self._has_version_manager = has_version_manager(search_path)
        bases = self._add_command(argv, self._folder)
        roots = [*bases, *(f"{base}/src" for base in bases)]
        roots += [_parent(path) for path, _, _ in self._to_scan]
        while self._commands or self._to_scan:
            if self._commands:
                self._add_command(*self._commands.popleft())
                continue
            path, start, kinds = self._to_scan.popleft()
            self._hashes.check_deadline(path)
            self._add_sibling_modules(_parent(path), module_suffixes(kinds))
            runner = ""
            if Kind.JAVASCRIPT in kinds:
                runner = "node"
                if not PurePosixPath(path).name.startswith("."):
                    self._add_package_of(path)
            if Kind.PYTHON in kinds:
                roots += self._added_roots(path, start, roots)
            for imported in import_candidates(path, start, kinds, dict.fromkeys(roots)):
                if not self._look_up(imported, runner="" if imported.endswith(_NOT_SOURCES) else runner):
                    break
        for source in self._python_sources if self._reads_bytecode else ():
            self._hashes.check_deadline(source)
            for compiled in compiled_modules(source):
                self._add(compiled)

    def _added_roots(self, path: str, start: bytes, roots: Collection[str]) -> list[str]:
        """The folders of the project in which Python also looks for modules, because a source says so."""
        named = dict.fromkeys(map(os.path.normpath, added_search_folders(path, start)))
        found = [folder for folder in named if folder not in roots and self._project.has_folder(folder)]
        self.is_partial |= len(roots) + len(found) > _MAX_FOLDERS
        return found[: max(0, _MAX_FOLDERS - len(roots))]

    def _add_command(self, argv: Sequence[str], folder: str) -> list[str]:
        """Add what a command in this folder runs. Return this folder, and those that the command changes into."""
        self.is_partial |= bool(problem_with_workspace_option(argv)) or has_too_many_words(argv)
        bases = [folder]
        for word in base_folders(argv):
            for base in [*bases]:  # `cd a && cd b`
                path = self._project.absolute(word, base)
                self._project.include_outside_folder(word, path)
                if self._project.has_folder(path) and path not in bases:
                    bases.append(path)
            if len(bases) > _MAX_FOLDERS:
                raise UnusableFileError(
                    errno.EFBIG, "changed into with too many others; write one `cd`", word
                )
        self._reads_bytecode |= not is_bytecode_elsewhere(
            argv, lambda name: self._has_module(name, bases), folder
        )
        for base in bases:
            self._add_named(argv, base)
            for word in argv:
                if word.startswith("@"):  # a file with more arguments
                    self._queue_command(
                        self._project.read_manifest(self._project.absolute(word[1:], base)).split(),
                        base,
                    )
            if imports_from_working_folder(argv):
                self._add_sibling_modules(base, PYTHON_MODULES)
            if suffixes := source_suffixes(argv):
                self._add_sources(base, suffixes)
        return bases

    def _queue_command(self, words: list[str], folder: str) -> None:
        """Treat these words as another command of the program: it is in a script, a `#!` line or a file of arguments."""
        self.is_partial |= len(words) > MAX_WORDS
        words = words[:MAX_WORDS]
        if (command := (folder, *words)) in self._seen_commands:
            return
        if len(self._seen_commands) >= MAX_FILES:
            self.is_partial = True
            return
        self._seen_commands.add(command)
        self._commands.append((words, folder))

    def _add_sources(self, folder: str, suffixes: tuple[str, ...]) -> None:
        """Add all files with these suffixes in a folder and below it."""
        entries = 0
        for inner, folders, names in walk_folders(folder):
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and name != "node_modules"
            )
            self._hashes.check_deadline(inner)
            entries += len(folders) + len(names)
            found = [f"{inner}/{name}" for name in names if name.endswith(suffixes)]
            if entries > _MAX_SOURCE_ENTRIES or len(self.files) + len(found) > MAX_FILES:
                raise UnusableFileError(
                    errno.EFBIG,
                    "too large to check all sources in it; build the server, and write the path of the built program",
                    folder,
                )
            for path in sorted(found):
                self._add(path)

    def _look_up(self, path: str, *, runner: str = "") -> bool:
        """Add an imported file, if there is one at this path. False if too many paths were looked up."""
        path = path and os.path.normpath(path)
        if path == UNCHECKED:
            self.is_partial = True
        elif path not in self._looked_up:
            self._hashes.check_deadline(path)
            if len(self._looked_up) >= _MAX_LOOK_UPS:
                self.is_partial = True
                return False
            self._looked_up.add(path)
            self._add(path, runner=runner)
            for compiled in self._compiled_variants(path):
                self._add(compiled)
            if path.endswith("/package.json") and os.path.relpath(path, self._folder) in self.files:
                self._add_entry_points(_parent(path), name="")
        return True

    def _compiled_variants(self, path: str) -> list[str]:
        """For `x.so`, the compiled modules `x.cpython-313-x86_64-linux-gnu.so` and the like, which Python prefers to `x.py`."""
        if not path.endswith(".so") or path.endswith(".abi3.so"):
            return []
        folder, name = _parent(path), PurePosixPath(path).stem
        if folder not in self._compiled:
            names = [*module_names(folder, PYTHON_MODULES)] if self._project.has_folder(folder) else []
            self.is_partial |= UNCHECKED in names
            self._compiled[folder] = [each for each in names if each.endswith(".so")]
        return [f"{folder}/{each}" for each in self._compiled[folder] if each.startswith(f"{name}.")]

    def _add_sibling_modules(self, folder: str, suffixes: tuple[str, ...]) -> None:
        """Add the names of all modules with these suffixes in a folder.

        Hash compiled modules, and modules with a name of the standard library.
        """
        if (folder, suffixes) in self._listed or not self._project.has_folder(folder):
            return
        self._listed.add((folder, suffixes))
        for name in module_names(folder, suffixes):
            self._hashes.check_deadline(folder)
            if name == UNCHECKED:
                self.is_partial = True
                continue
            module = name.rstrip("/").partition(".")[0]
            relative = os.path.relpath(f"{folder}/{name}", self._folder) + "/" * name.endswith("/")
            self._check_approved(relative)
            self.sibling_modules.add(relative)
            if name.endswith(COMPILED_SUFFIXES):
                self._add(f"{folder}/{name}")
            elif module in sys.stdlib_module_names:
                for file in python_module_candidates(folder, module):
                    self._add(file)

    def _add_package_of(self, path: str) -> None:
        """Add the package.json of the package that a script belongs to, and the files that it maps names to."""
        folder = _parent(path)
        while self._project.is_below(folder) and not _exists(f"{folder}/package.json"):
            folder = _parent(folder)
        if folder in self._packages or not self._project.is_below(folder):
            return
        self._packages.add(folder)
        self._add(f"{folder}/package.json")
        for target in mapped_files(self._project.read_package(folder)):
            self._look_up(UNCHECKED if "*" in target else self._project.absolute(target, folder))

    def _add_launcher_files(self, argv: Sequence[str], base: str) -> None:
        if builds_project(argv):
            self._add_build(base)
        managed = VERSION_FILES if self._has_version_manager else ()
        for name in dict.fromkeys((*launcher_files(argv), *managed)):
            for path in _files_in(f"{base}/{name}") if name.endswith("/") else (f"{base}/{name}",):
                if name in TASK_FILES:
                    self._add_task_file(path, base)
                else:
                    self._add(path)
            self._check_settings(name, base)
        for name in tool_settings(argv):
            path = f"{base}/{name}"
            if self._project.has(path) and _is_file(path) and _size(path) <= MAX_SCANNED_BYTES:
                self._add_task_file(path, base)
            elif _is_file(path):
                self._add(path)
                self.is_partial = True

    def _check_settings(self, name: str, base: str) -> None:
        """Raise if a file of settings decides what runs. Note from where it lets packages be fetched."""
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
            self.package_sources.update(dict.fromkeys(package_sources(self._project.read_manifest(path))))

    def _add_named(self, argv: Sequence[str], base: str) -> None:
        self._add_launcher_files(argv, base)
        has_task_files, has_import_maps = runs_task_files(argv), reads_import_maps(argv)
        for named in find_named_items(argv):
            self._hashes.check_deadline(base)
            match named:
                case NamedFile(path=path, is_program=is_program, runner=runner):
                    absolute = self._project.absolute(path, base)
                    self._project.include_outside_folder(path, absolute)
                    self._add_named_file(absolute, is_program=is_program, runner=runner)
                    suffix = PurePosixPath(path).suffix
                    is_import_map = has_import_maps and suffix in (".json", ".jsonc")
                    if is_import_map or (has_task_files and suffix not in DATA_SUFFIXES):
                        self._add_task_file(absolute, base)
                case NamedModule(name=name):
                    self._add_module(name, base)
                case NamedPackage(name=name):
                    self._add_package(name, base)
                case NamedCode(text=text):
                    self._add_inline_code(text, base)

    def _add_inline_code(self, text: str, base: str) -> None:
        """Add the modules and files that code in the command names: `python -c 'import server'`, `node -e 'require("./x")'`."""
        source, kinds = text.encode(errors="replace"), (Kind.PYTHON, Kind.JAVASCRIPT)
        for path in import_candidates(f"{base}/code", source, kinds, (base, f"{base}/src")):
            self._look_up(path)
        for word in dict.fromkeys(words_in_code(text)):
            self._hashes.check_deadline(base)
            if _MODULE_NAME.fullmatch(word):  # `importlib.import_module("server")`
                self._add_module(word, base)
            path = self._project.absolute(word, base)
            if self._project.has(path) and PurePosixPath(path).suffix not in DATA_SUFFIXES:
                self._add(path)

    def _add_task_file(self, path: str, base: str) -> None:
        """Add a file with commands, the task files that it includes, and every file that these name."""
        pending = [path]
        while pending and (path := pending.pop()):
            if (path, base) in self._task_files or not self._project.has(path) or not _is_file(path):
                continue
            self._task_files.add((path, base))
            self._add(path)
            text = self._project.read_manifest(path)
            words, included = task_words(text), {*included_files(text)}
            self._queue_command(words, base)
            self._queue_command(unquoted := task_words(without_quotes(text)), base)
            self.is_partial |= any(_COMPUTED_NAME.search(word) for word in included) or maps_prefixes(text)
            for word in dict.fromkeys((*words, *unquoted)):
                self._hashes.check_deadline(path)
                named = self._project.absolute(word, base)
                is_extended = '"extends"' in text and word.endswith(".json")  # in a tsconfig.json
                if word in included or is_extended or PurePosixPath(word).suffix in _TASK_SUFFIXES:
                    pending.append(named)
                if not self._project.has(named):
                    continue
                self._add(named)
                if _is_folder(named):  # `build: ./server` in a compose file, `make -C server`
                    pending += (f"{named}/{name}" for name in TASK_FILES if _is_file(f"{named}/{name}"))

    def _add_named_file(self, path: str, *, is_program: bool, runner: str) -> None:
        if not self._project.has(path):
            return
        if is_program:  # JavaScript runtimes add a suffix to the name, as they do for imports
            self._add(path, runner=runner)
            for candidate in (
                *javascript_candidates(path),
                *(f"{path}{suffix}" for suffix in _OTHER_SUFFIXES),
            ):
                self._look_up(candidate)
        elif (
            PurePosixPath(path).suffix.lower() in CODE_SUFFIXES
            or is_manifest(PurePosixPath(path).name)
            or os.access(path, os.X_OK)
        ):
            self._add(path)
        venv = _parent(_parent(path))
        self._add(f"{venv}/pyvenv.cfg")  # if it is a virtual environment

    def _add_module(self, name: str, base: str) -> None:
        for inner in (base, f"{base}/src"):
            for file in python_module_candidates(inner, name):
                self._add(file)
                self.is_partial |= file == UNCHECKED

    def _has_module(self, name: str, bases: Iterable[str]) -> bool:
        """Whether Python finds a module in the project when it is started in one of these folders."""
        places = (f"{base}/{name.replace('.', '/')}" for base in bases)
        return any(_is_file(f"{place}.py") or _is_file(f"{place}/__main__.py") for place in places)

    def _add_package(self, name: str, base: str) -> None:
        """Add a package: the one in a folder, an installed one, or the script with this name in a manifest."""
        path = self._project.absolute(name, base)
        if self._project.has(path) and _is_folder(path):
            for file in PACKAGE_FILES:
                self._add(f"{path}/{file}")
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
            self._add(f"{base}/{file}")
        if (installed := f"{base}/node_modules/{bare}") and _is_file(f"{installed}/package.json"):
            self._add_entry_points(installed, name="")  # npx runs its only program, whatever its name is
        self._add_entry_points(base, name=command)

    def _add_entry_points(self, folder: str, *, name: str) -> None:
        """Add the entry points in the manifests of a folder; with a name, only the script with this name."""
        package = self._project.read_package(folder)
        for text in package_scripts(package, name):
            self._add(f"{folder}/package.json")
            for path in javascript_candidates(self._project.absolute(text, folder)):
                if self._project.has(path) and _is_file(path):
                    self._add(path)
            self._queue_command(shell_words(text), folder)
        if name == "start":  # npm runs it if there is no script of this name
            self._add(f"{folder}/server.js")
        for manifest in _TOML_MANIFESTS if name else ():
            if texts := self._project.texts_by_key(f"{folder}/{manifest}").get(name):
                self._add(f"{folder}/{manifest}")
                for text in (" ".join(texts), *texts):
                    self._queue_command(shell_words(text), folder)

    def _add_python_package(self, folder: str) -> None:
        """Add the modules of a local package that its scripts name, and what runs when it is installed."""
        for manifest in _TOML_MANIFESTS:
            for text in _unique_texts(self._project.texts_by_key(f"{folder}/{manifest}")):
                if _ENTRY_POINT.fullmatch(text):
                    self._queue_command([text], folder)
        self._add_build(folder)

    def _add_build(self, folder: str) -> None:
        """Add what runs when a package in the project is built: its backend, and the local packages that its manifest names."""
        pending = [folder]
        while pending:
            folder = pending.pop()
            if folder in self._built:
                continue
            if len(self._built) >= _MAX_FOLDERS:
                self.is_partial = True
                return
            self._built.add(folder)
            by_key = self._project.texts_by_key(f"{folder}/pyproject.toml")
            named = [path for text in _unique_texts(by_key) if (path := self._project.absolute(text, folder))]
            folders = [path for path in named if path != folder and self._project.has_folder(path)]
            for text in (text for key in _BUILD_KEYS for text in by_key.get(key, ())):
                self._hashes.check_deadline(folder)
                if PurePosixPath(text.strip()).suffix in CODE_SUFFIXES:
                    self._add(self._project.absolute(text.strip(), folder))
            for file in (f"{path}/{name}" for path in (folder, *folders) for name in _BUILD_FILES):
                self._add(file)
            for backend in by_key.get("build-backend", ()):
                for place in (folder, *folders):
                    self._add_module(backend.strip().partition(":")[0], place)
            pending += folders

    def _add(self, path: str, *, runner: str = "") -> None:
        """Hash a file of the project, if there is one at this path. `runner` is the program that runs it, if that is known."""
        if not os.path.lexists(path) or _is_folder(path) or not self._project.has(path):
            return
        relative = os.path.relpath(path, self._folder)
        if relative in self.files:
            if runner and path in self._kinds:
                self._search(path, self._hashes.read(path)[1], runner)
            return
        if len(self.files) >= MAX_FILES:
            self.is_partial = True
            return
        real = real_path(path)
        self._python_sources.update(
            (place, None) for place in (path, real) if place.endswith(SOURCE_SUFFIXES)
        )
        # System updates change files there: for a link, the path is hashed, not the file's content.
        if real.startswith(SYSTEM_PREFIXES) and not self._project.is_below(real):
            self.files[relative] = hashlib.sha256(b"link to " + os.fsencode(real)).hexdigest()
            self._check_approved(relative, self.files[relative])
            return
        start = self._hash(path, relative)
        self._reads_bytecode |= path.endswith(SOURCE_SUFFIXES) and mentions_bytecode(start)
        if start.startswith(b"#!"):
            self._queue_command(start[2:].partition(b"\n")[0].decode(errors="replace").split(), self._folder)
        self._search(path, start, runner)

    def _search(self, path: str, start: bytes, runner: str) -> None:
        """Search a file for the files that it runs, in each language that it may be in."""
        kinds = script_kinds(path, start, runner)
        self.is_partial |= bool(kinds) and len(start) >= MAX_SCANNED_BYTES
        kinds -= self._kinds.get(path, frozenset())
        self._kinds[path] = kinds | self._kinds.get(path, frozenset())
        if Kind.SHELL in kinds:
            self._queue_script(path, start)
        if kinds - {Kind.SHELL}:
            # Python and Node look for imports in the folder of the link's target.
            for place in dict.fromkeys((path, real_path(path))):
                self._to_scan.append((place, start, kinds))

    def _queue_script(self, path: str, start: bytes) -> None:
        """Treat the words of a shell script as commands. A computed folder is left out: `"$DIR/server.js"` is `server.js`."""
        text = start.decode(errors="replace").replace("\\\n", " ")
        for each in (text, without_quotes(text)):
            words = [
                word.partition("/")[2] if word.startswith(("$", "/")) and not _exists(word) else word
                for word in task_words(each)
            ]
            for folder in dict.fromkeys((self._folder, _parent(path))):
                if self._project.has(folder):
                    self._queue_command([word for word in words if word], folder)

    def _hash(self, path: str, relative: str) -> bytes:
        """Hash a file. Return its beginning."""
        self.files[relative], start, status = self._hashes.read(path)
        self.stamps.add((path, status.st_ino, status.st_ctime_ns))
        self._check_approved(relative, self.files[relative])
        return start

    def _check_approved(self, part: str, digest: str = "") -> None:
        """Raise unless the part is approved; with a digest, unless this version of it is."""
        if self._approved is None:
            return
        approved = self._approved.get(part, ())
        if not approved or (digest and digest not in approved):
            raise _UnapprovedPartError(part)


def _unique_texts(by_key: Mapping[str, Iterable[str]]) -> list[str]:
    """The texts in a manifest, each once."""
    texts = dict.fromkeys(text.strip() for texts in by_key.values() for text in texts)
    return [text for text in islice(texts, MAX_WORDS) if text]


def _find_in_path(command: str, search_path: str) -> str:
    return (
        command
        if "/" in command
        else shutil.which(command, path=absolute_search_path(search_path)) or command
    )


def _files_in(folder: str) -> list[str]:
    """The paths of all files directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in islice(entries, MAX_FILES + 1) if not entry.is_dir())
    except OSError:
        return []
