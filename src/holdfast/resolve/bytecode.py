"""Find out whether Python may read compiled modules in a project's `__pycache__`, and which these are.

Python runs a compiled module even if it was not compiled from the source next to it. So a project's server gets the variable
`PYTHONPYCACHEPREFIX`, and Python looks for compiled modules in another folder. But the options `-E` and `-I` make Python ignore this
variable, and launchers and shells can remove it.
"""

import errno
import os
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import PurePosixPath

from holdfast.model.untrusted_file import UnusableFileError, open_untrusted_file

SOURCE_SUFFIXES = (".py", ".pyw")
"""The suffixes of the sources that Python keeps compiled modules of."""
_PYTHON = re.compile(r"python(?:3(?:\.(?:[89]|[1-9]\d)t?)?)?")  # Python before 3.8 does not know the variable
_OPTIONS = re.compile(r"-[bBdiOPqRsSuvx]+")
_OPTIONS_AND_M = re.compile(r"-[bBdiOPqRsSuvx]*m")
_OPTIONS_AND_C = re.compile(r"-[bBdiOPqRsSuvx]*c")
_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")
_UV_VALUE_OPTIONS = ("--directory", "--project", "--python", "-p", "--with", "--extra", "--group")
_MAX_ENTRIES = 5000
_MAX_FIRST_LINE = 256
_FOLDER = "__pycache__"


def is_bytecode_elsewhere(
    argv: Sequence[str], is_own_module: Callable[[str], bool], folder: str = ""
) -> bool:
    """Whether Python certainly keeps the variable, and so reads compiled modules only in the other folder.

    True only if the command is Python, a Python script or `uv run`, and all of its options are known to keep the variable.
    `is_own_module` says whether a module of `python -m` belongs to the project. The command runs in `folder`.
    """
    words = [*argv]
    if any("pycache" in word.lower() for word in words):
        return False
    if words and PurePosixPath(words[0]).name == "env":  # in a `#!` line
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    if not words:
        return True
    program, *rest = words
    if PurePosixPath(program).name == "uv":
        return _uv_keeps_variable(rest, is_own_module)
    if _is_python(program):
        return _python_keeps_variable(rest, is_own_module)
    words = _interpreter(os.path.join(folder, program)) if folder and "/" in program else []  # noqa: PTH118 - a name, not a path yet
    return bool(words) and is_bytecode_elsewhere(words, is_own_module)


def is_compiled_module(path: str) -> bool:
    """Whether this is the path of a module that Python compiled and runs instead of its source."""
    return path.endswith(".pyc") and PurePosixPath(path).parent.name == _FOLDER


def mentions_bytecode(source: bytes) -> bool:
    """Whether a source may change where Python looks: `sys.pycache_prefix = None`."""
    return b"pycache" in source.lower()


def compiled_modules(source: str) -> list[str]:
    """The compiled modules of a source file, for all versions of Python. Raise if there are too many files next to them."""
    folder = os.path.join(os.path.dirname(source), _FOLDER)  # noqa: PTH118, PTH120 - a name, not a path yet
    stem = f"{PurePosixPath(source).stem}."
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MAX_ENTRIES + 1)]
    except OSError:  # there is no `__pycache__`
        return []
    if len(names) > _MAX_ENTRIES:
        raise UnusableFileError(errno.EFBIG, "a folder with too many files; remove it", folder)
    return [f"{folder}/{name}" for name in sorted(names) if name.startswith(stem) and name.endswith(".pyc")]


def _interpreter(script: str) -> list[str]:
    """The words in the `#!` line of a script; empty if it has none."""
    try:
        descriptor = open_untrusted_file(script)
    except (OSError, ValueError):
        return []
    try:
        start = os.read(descriptor, _MAX_FIRST_LINE)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    line, line_end, _ = start.partition(b"\n")
    return line[2:].decode(errors="replace").split() if line_end and line.startswith(b"#!") else []


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(PurePosixPath(word).name) is not None


def _python_keeps_variable(options: Sequence[str], is_own_module: Callable[[str], bool]) -> bool:
    words = iter(options)
    for word in words:
        if _OPTIONS_AND_M.fullmatch(word):
            return is_own_module(next(words, ""))
        if _OPTIONS_AND_C.match(word):
            return True
        if not word.startswith("-"):
            return word.endswith(SOURCE_SUFFIXES)
        if word in _VALUE_OPTIONS:
            next(words, "")
        elif not _OPTIONS.fullmatch(word):
            return False
    return True


def _uv_keeps_variable(options: Sequence[str], is_own_module: Callable[[str], bool]) -> bool:
    words = iter(options)
    for word in words:
        if _is_python(word):
            return _python_keeps_variable([*words], is_own_module)
        if word.endswith(SOURCE_SUFFIXES):
            return True
        if word in _UV_VALUE_OPTIONS:
            next(words, "")
        elif word != "run" and (not word.startswith("--") or word.startswith("--env-file")):
            return False
    return True
