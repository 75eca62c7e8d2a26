"""Find the paths of what a trusted server's command runs or may load, so that nothing confined can change them.

Which of its arguments a program executes is not known for most programs. So every absolute path in the command counts, whether
or not it exists yet, except files that can only be data.
"""

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from holdfast.model.mounts import is_within
from holdfast.model.real_path import StepBudget, follow_links, real_path
from holdfast.model.reserved_variables import risky_variable_reason
from holdfast.model.search_path import absolute_search_path
from holdfast.model.server import Stdio
from holdfast.model.untrusted_file import open_untrusted_file
from holdfast.resolve.command_words import (
    DATA_SUFFIXES,
    SETTINGS_SUFFIXES,
    NamedFile,
    base_folders,
    find_named_items,
    is_manifest,
)
from holdfast.sandbox.own_code import SYSTEM_FOLDERS

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# An absolute path, also after an option (`-I/shop`) and in code (`sys.path.insert(0, '/shop')`).
_PATH_IN_TEXT = re.compile(r"(?:(?<![\w./~$}*-])|(?<=^-\w))/[^\s'\"`;|&()<>,:=]*")
_MAX_PACKAGE_DEPTH = 8
_MAX_BASES = 20
_MAX_STEPS_IN_FOLDER = 20_000
_KEEP_SECONDS = 60.0
_MAX_PATH = 4096


def executed_by(stdio: Stdio, environ: Mapping[str, str]) -> Iterator[str]:
    """The paths of what a server runs: its program, its scripts, the folders that they load code from, and its `cwd`.

    A path that depends on the session's folder is left out: it is another file in each folder.
    """
    own_path = stdio.env.get("PATH", "")
    yield from found_in_path(own_path)
    base = stdio.cwd if stdio.cwd.startswith("/") else ""
    program = stdio.command
    if "/" not in program:
        search_path = own_path or environ.get("PATH", "")
        program = shutil.which(program, path=absolute_search_path(search_path)) or program
    loading = [value for name, value in stdio.env.items() if name != "PATH" and risky_variable_reason(name)]
    argv = [_expand(word, environ) for word in (program, *stdio.args, *loading)]
    bases = [base, *(os.path.join(base, folder) for folder in base_folders(argv))]  # noqa: PTH118 - words, not paths yet
    bases = [*dict.fromkeys(folder for folder in bases if _is_path(folder))][:_MAX_BASES]
    for folder in bases:
        yield from _paths_to_protect(folder, is_program=False)
    for path in dict.fromkeys(
        path for word in argv for path in _PATH_IN_TEXT.findall(word) if _is_path(path)
    ):
        yield from _paths_to_protect(path, is_program=False)
    for named in find_named_items(argv):
        if isinstance(named, NamedFile):
            for path in _possible_places(named.path, bases):
                yield from _paths_to_protect(path, is_program=named.is_program)


def found_in_path(search_path: str) -> Iterator[str]:
    """The folders of a `PATH`, and what the links and scripts in them lead to. An empty entry is the current folder."""
    for entry in dict.fromkeys(search_path.split(os.pathsep)) if search_path else ():
        folder = str(Path(entry or ".").absolute())
        yield folder
        with suppress(OSError):  # the folder is missing
            yield from _programs_in(real_path(folder), int(time.monotonic() // _KEEP_SECONDS))


@lru_cache(maxsize=64)
def _programs_in(folder: str, _minute: int) -> tuple[str, ...]:
    """Where the links in a folder of the `PATH` lead, and the interpreters of its scripts, except those in system folders.

    Cached for a minute: `_minute` is part of the key. Each folder has a budget of its own, so that one folder cannot use up that of another.
    """
    paths: dict[str, None] = {}
    budget = StepBudget(_MAX_STEPS_IN_FOLDER)
    is_system = _is_of_system(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            budget.spend()
            if not entry.is_symlink():
                paths.update(dict.fromkeys(() if is_system else _interpreter_of(Path(entry.path))))
            elif not is_system or "/" in os.readlink(entry.path):  # noqa: PTH115 - a name, not a path yet
                followed = follow_links(entry.path, budget)
                if not all(map(_is_of_system, (*followed.passed, followed.real or "/"))):
                    paths.update(dict.fromkeys(_paths_to_protect(entry.path, is_program=True)))
    return tuple(paths)


def _is_of_system(path: str) -> bool:
    return any(is_within(path, system) for system in SYSTEM_FOLDERS)


def _expand(word: str, environ: Mapping[str, str]) -> str:
    """The word with the user's variables and home, as a shell expands them: `sh -c "exec ~/shop/run"`."""
    if "~" in word:
        word = re.sub(r"(^|[\s=:\"'])~(?=/)", lambda matched: matched[1] + environ.get("HOME", "~"), word)
    return (
        _VARIABLE.sub(lambda matched: environ.get(matched[1] or matched[2], matched[0]), word)
        if "$" in word
        else word
    )


def _is_path(word: str) -> bool:
    return word.startswith("/") and "\0" not in word and len(word) <= _MAX_PATH


def _possible_places(word: str, bases: Iterable[str]) -> Iterator[str]:
    """An absolute path, or where a relative one leads to from the folders that the command changes into."""
    if word.startswith("/"):
        yield from (word,) if _is_path(word) else ()
        return
    for base in bases:  # the base itself is read-only, but a link or `..` can lead out of it
        path = os.path.join(base, word)  # noqa: PTH118 - a word, not a path yet
        if _is_path(path) and (os.path.lexists(path) or ".." in word.split("/")):
            yield path


def _paths_to_protect(path: str, *, is_program: bool) -> Iterator[str]:
    """The paths that must not change, so that this path leads to the same code as now: the path itself, and the folders from which its program loads code.

    If the path does not exist, the folder in which it could be created.
    """
    name = PurePosixPath(path)
    suffix = name.suffix.lower()
    if suffix in DATA_SUFFIXES and not is_program:
        return
    try:
        followed = follow_links(path, StepBudget())
    except OSError:  # too many links: protect the path as it is written
        yield path
        return
    if not os.path.exists(path):  # noqa: PTH110 - False for a word that is no path
        yield from followed.passed
        yield from (_nearest_folder(place) for place in (path, followed.real) if place)
        return
    yield path
    if os.path.isdir(path):  # noqa: PTH112 - False for a word that is no path
        # For `node x`, the file x.js next to the folder x has precedence.
        yield from (str(name.parent),) if is_program else ()
        return
    if is_program or is_manifest(name.name) or suffix not in (*DATA_SUFFIXES, *SETTINGS_SUFFIXES):
        yield from (str(PurePosixPath(place).parent) for place in (path, followed.real) if place)
        yield from _loaded_by(Path(path))


def _nearest_folder(path: str) -> str:
    """The path if it is a folder, else the nearest folder above it that exists."""
    folder = path
    while not os.path.isdir(folder):  # noqa: PTH112 - False for a word that is no path
        folder = os.path.dirname(folder)  # noqa: PTH120 - a word, not a path yet
    return folder


def _loaded_by(program: Path) -> Iterator[str]:
    """The package or virtual environment of a program, and the interpreter that its first line names."""
    try:
        real = Path(real_path(str(program)))
    except OSError:  # the path has too many links, so the program cannot be executed
        return
    if (program.parent.parent / "pyvenv.cfg").is_file():
        yield str(program.parent.parent)
    yield from _interpreter_of(real)
    for folder in [*real.parents][:_MAX_PACKAGE_DEPTH]:
        if (folder / "package.json").is_file():
            yield str(folder)
            return


def _interpreter_of(script: Path) -> Iterator[str]:
    """The paths in the first line of a script, and the virtual environments that they are in."""
    start = _first_line(script)
    for word in os.fsdecode(start[2:]).split()[:2] if start.startswith(b"#!") else ():
        if word.startswith("/"):
            yield word
            if (Path(word).parent.parent / "pyvenv.cfg").is_file():
                yield str(Path(word).parent.parent)


def _first_line(path: Path) -> bytes:
    try:
        descriptor = open_untrusted_file(str(path))
    except OSError:
        return b""
    try:
        return os.read(descriptor, 256).partition(b"\n")[0]
    finally:
        os.close(descriptor)
