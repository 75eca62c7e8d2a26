"""Find out which languages a script may be in: by the program that runs it, by its `#!` line, and by its name.

The name alone is not enough: `python notes.txt` and `bash setup.js` run these files.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import PurePosixPath

from holdfast.resolve.command_words import MANIFEST_NAMES, SHELL, program_name

JAVASCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
PYTHON_SUFFIXES = (".py", ".pyw")
_SHELL_SUFFIXES = (".sh", ".bash", ".zsh", ".ksh", ".fish", ".command")
_RUNS_PYTHON = re.compile(r"(?:python|pypy|pythonw)[0-9.]*t?|uv|uvx|poetry|pdm|hatch|pipenv|pipx|rye|pixi")
_RUNS_JAVASCRIPT = re.compile(r"node|nodejs|deno|bun|bunx|tsx|ts-node|npx|npm|pnpm|pnpx|yarn")


class Language(StrEnum):
    """A language whose scripts are searched for the files that they run."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    SHELL = "shell"


def script_languages(path: str, start: bytes, runner: str = "") -> frozenset[Language]:
    """The languages that a script may be in, by its path and its beginning. `runner` is the program that runs it, if that is known."""
    first_line = start[2:].partition(b"\n")[0].decode(errors="replace") if start.startswith(b"#!") else ""
    by_line = {*_languages_of_programs(first_line.split())}
    languages = {*_languages_of_programs([runner]), *by_line}
    match PurePosixPath(path).suffix:
        case "" if b"\0" in start:
            pass  # a compiled program
        case "":
            languages |= {Language.PYTHON, Language.JAVASCRIPT}
            if not first_line and PurePosixPath(path).name not in MANIFEST_NAMES:
                languages.add(Language.SHELL)
        case suffix if suffix in PYTHON_SUFFIXES:
            languages.add(Language.PYTHON)
        case suffix if suffix in JAVASCRIPT_SUFFIXES:
            languages.add(Language.JAVASCRIPT)
        case suffix if suffix in _SHELL_SUFFIXES and not first_line:
            languages.add(Language.SHELL)
        case _:
            pass
    return frozenset(languages)


def _languages_of_programs(words: Iterable[str]) -> Iterable[Language]:
    for name in map(program_name, words):
        if _RUNS_PYTHON.fullmatch(name):
            yield Language.PYTHON
        elif _RUNS_JAVASCRIPT.fullmatch(name):
            yield Language.JAVASCRIPT
        elif name == "." or SHELL.fullmatch(name):
            yield Language.SHELL
