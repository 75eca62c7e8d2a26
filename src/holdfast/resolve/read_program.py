"""Finds the files of a project that a server's command runs, and hashes each of them."""

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

from holdfast.model.mounts import is_within
from holdfast.model.search_path import absolute_search_path
from holdfast.model.untrusted_file import UnusableFileError
from holdfast.resolve.bytecode import compiled_modules
from holdfast.resolve.collect_commands import CommandCollector
from holdfast.resolve.collect_files import FileCollector, UnapprovedPartError
from holdfast.resolve.collect_packages import MAX_FOLDERS, PackageCollector
from holdfast.resolve.command_words import (
    problem_with_missing_script,
    problem_with_workspace_option,
)
from holdfast.resolve.file_hashes import FileHashes
from holdfast.resolve.program import Program, quote_path
from holdfast.resolve.program_imports import (
    COMPILED_SUFFIXES,
    UNCHECKED,
    added_search_folders,
    import_candidates,
    inline_metadata_texts,
    loads_computed_names,
    module_suffixes,
)
from holdfast.resolve.script_languages import Language
from holdfast.resolve.version_managers import has_version_manager

# Node runs an imported file with any other suffix as JavaScript.
_NOT_SOURCES = (".json", ".node", ".wasm", *COMPILED_SUFFIXES)
_is_folder, _parent = os.path.isdir, os.path.dirname


def read_program(
    argv: Sequence[str],
    folder: str,
    search_path: str = "",
    *,
    module_folders: Sequence[str] = (),
    hashes: FileHashes | None = None,
    approved: Mapping[str, Collection[str]] | None = None,
) -> Program:
    """Read the program of a command that runs in this folder. Call this in a thread, because it reads files.

    `module_folders` are those that the entry's `PYTHONPATH` names. All Python modules in them belong to the program.
    If a file cannot be read, the result has a `problem`. `approved` has the approved hashes of each part. If it is given,
    reading stops at the first part that is not approved, so that only approved files are searched for imports.
    """
    files = FileCollector(folder, hashes or FileHashes(), approved)
    try:
        is_named = _collect(files, argv, search_path, module_folders)
    except UnapprovedPartError as error:
        return Program(files=files.files, unapproved_part=str(error))
    except UnusableFileError as error:
        return Program(files=files.files, problem=f"{_quote(error.filename)} is {error.strerror}")
    except OSError as error:
        return Program(files=files.files, problem=f"{_quote(error.filename)}: {error.strerror}")
    return Program(
        files=files.files,
        problem=problem_with_workspace_option(argv)
        or ("" if is_named else problem_with_missing_script(argv)),
        stamps=frozenset(files.stamps),
        is_partial=files.is_partial,
        sibling_modules=frozenset(files.sibling_modules),
        package_sources=tuple(files.package_sources),
    )


def _collect(
    files: FileCollector, argv: Sequence[str], search_path: str, module_folders: Sequence[str]
) -> bool:
    """Collect all files. Return whether the command names some of them."""
    argv = [_find_in_path(argv[0], search_path), *argv[1:]] if argv else []
    packages = PackageCollector(files)
    added = [files.project.absolute(name) for name in module_folders]
    collector = CommandCollector(
        files, packages, has_version_manager=has_version_manager(search_path), module_folders=added
    )
    bases = collector.add_command(argv, files.folder)
    roots = [*bases, *added, *(f"{base}/src" for base in bases)]
    roots += [_parent(path) for path, _, _ in files.to_scan]
    _search(files, packages, collector, roots)
    is_named = bool(files.files)
    if added:
        for folder in added:
            collector.add_module_folder(folder)
        _search(files, packages, collector, roots)
    for source in files.python_sources if files.reads_bytecode else ():
        files.hashes.check_deadline(source)
        for compiled in compiled_modules(source):
            files.add(compiled)
    return is_named


def _search(
    files: FileCollector, packages: PackageCollector, collector: CommandCollector, roots: list[str]
) -> None:
    """Read the commands and sources that are queued, and those that they lead to.

    `roots` are the folders in which Python looks for modules. Those that a source adds are appended.
    """
    while files.commands or files.to_scan:
        if files.commands:
            collector.add_command(*files.commands.popleft())
            continue
        path, start, languages = files.to_scan.popleft()
        files.hashes.check_deadline(path)
        suffixes = module_suffixes(languages)
        is_computed = loads_computed_names(start, languages)
        files.is_partial |= is_computed
        files.add_sibling_modules(_parent(path), suffixes, with_content=is_computed)
        runner = ""
        if Language.JAVASCRIPT in languages:
            runner = "node"
            if not PurePosixPath(path).name.startswith("."):
                packages.add_package_of(path)
        if Language.PYTHON in languages:
            for root in (added := _added_roots(files, path, start, roots)):
                files.add_sibling_modules(root, (*suffixes, ".pth"), with_content=is_computed)
            roots += added
            for text in inline_metadata_texts(start):
                local = files.project.absolute(text, _parent(path))
                if files.project.has_folder(local):
                    packages.add_build(local)
        for imported in import_candidates(path, start, languages, dict.fromkeys(roots)):
            if not packages.add_imported_file(
                imported, runner="" if imported.endswith(_NOT_SOURCES) else runner
            ):
                break


def _added_roots(files: FileCollector, path: str, start: bytes, roots: Collection[str]) -> list[str]:
    """The folders of the project in which Python also looks for modules, because a source says so."""
    found: list[str] = []
    for named in dict.fromkeys(added_search_folders(path, start, files.folder)):
        files.hashes.check_deadline(path)
        if named == UNCHECKED:
            files.is_partial = True
        elif _is_folder(named) and (folder := os.path.normpath(named)) not in (*roots, *found):
            if not files.project.has(folder):
                if named.endswith("/"):  # the source does not name it
                    continue
                # A folder above the project is part of it only if a module is found there.
                if not is_within(files.folder, folder):
                    files.is_partial |= not files.project.include_imported(folder)
            found.append(folder)
    files.is_partial |= len(roots) + len(found) > MAX_FOLDERS
    return found[: max(0, MAX_FOLDERS - len(roots))]


def _quote(path: object) -> str:
    return quote_path(str(path)[-200:])


def _find_in_path(command: str, search_path: str) -> str:
    return (
        command
        if "/" in command
        else shutil.which(command, path=absolute_search_path(search_path)) or command
    )
