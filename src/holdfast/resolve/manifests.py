"""Find what manifests name: the scripts, programs and entry points of a package.json or pyproject.toml, the commands of a task file."""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.resolve.command_words import package_name

_TABLE = re.compile(r"[ \t]*\[+([\w.\"' \t-]{1,300})\]+[ \t\r]*(?:#.*)?$")
_KEY = re.compile(r"([ \t]*)([\w.\"'-]{1,300})[ \t]*=")
_TEXT = re.compile(r"[^\"'\[\]{},\r]+")
_RECIPE_PREFIX = re.compile(r"^\t[ \t@+-]+", re.MULTILINE)  # in a Makefile: `-@node server.js`
_INCLUDE = re.compile(r"^[ \t]*(?:[-s]?include|import\??|mod\??|load|!include)[ \t]+(.+)$", re.MULTILINE)
_LINE_BREAKS = re.compile(r"\r\n|\r|\n")
_END_OF_KEY = re.compile(r"=|:(?=[ \t]|$)")
_PLAIN_KEY = re.compile(r"[^\"'\\$]*")  # quotes, escapes and variables could hide the name of a setting
_NOT_LETTERS = re.compile(r"[^A-Za-z]")
# Settings of npm and pnpm that decide what runs, without `-` and `_`.
_NPM_SETTINGS = frozenset(
    (
        *("nodeoptions", "scriptshell", "shell", "call", "package", "git", "nodegyp", "python"),
        *("workspace", "workspaces", "includeworkspaceroot", "filter", "recursive", "dir"),
        *("userconfig", "globalconfig", "pnpmfile", "globalpnpmfile", "usenodeversion"),
    )
)
_MAX_SETTING = 40  # a longer name of a setting is not shown
_PREFIX_MAP = re.compile(r"\"baseUrl\"|\"[^\"\n]{0,200}(?:\*\"|/\")\s*:\s*[\[\"]")
_QUOTES = re.compile(r"[\"'\\]")
_COMMENT = re.compile(r"#.*")
_SETTINGS_COMMENT = re.compile(r"^[ \t]*[#;].*$", re.MULTILINE)
_ADDRESS = re.compile(r"\bhttps?://(?:[^\s/@\"']*@)?([^\s/\"'@?#]+)")
_MAX_SOURCES = 20
_TASK_SEPARATORS = re.compile(r"[\s;&|()<>\"'`,\[\]{}=]+")


def decode_package(text: str) -> JsonObject:
    """The content of a package.json. Raise ValueError if it is not a JSON object. An empty string counts as `{}`."""
    try:
        content: Json = msgspec.json.decode(text) if text else {}
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def package_scripts(content: JsonObject, name: str) -> Iterator[str]:
    """The files and commands that a package.json names.

    Without a name: the package's programs and entry points. With a name: the program and the npm scripts (with `pre` and `post`) of this name.
    """
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


def texts_by_key(manifest: str) -> dict[str, list[str]]:
    """The strings in a TOML file, a setup.cfg or a setup.py, by the key and by the table that contains them.

    Among them are the commands and entry points of all scripts: in `[project.scripts]`, in `[tool.pdm.scripts.serve]` and so on.
    They are found by patterns, which prefer too many texts to too few.
    """
    by_key: dict[str, list[str]] = {}
    table, outer_key, key = "", "", ""
    for line in manifest.split("\n"):
        rest = line
        if header := _TABLE.match(line):
            table, outer_key, key = _last_part(header[1]), "", ""
            continue
        if pair := _KEY.match(line):
            key, rest = _last_part(pair[2]), line[pair.end() :]
            outer_key = outer_key if pair[1] else key
        for text in _TEXT.findall(rest):
            for name in {table, outer_key, key}:
                by_key.setdefault(name, []).append(text)
            inner, equals, value = text.partition("=")
            if equals:
                by_key.setdefault(inner.strip(), []).append(value)
    return by_key


def _last_part(key: str) -> str:
    return key.rpartition(".")[2].strip("\"' \t")


def task_words(text: str) -> list[str]:
    """The words of a task file, such as a Makefile, without the characters that surround commands in it."""
    text = _RECIPE_PREFIX.sub("\t", text)
    return [word.lstrip("@+") for word in _TASK_SEPARATORS.split(text) if word]


def without_quotes(text: str) -> str:
    """Commands without the quotation marks and backslashes that may be inside of words: `he''lper.py` is `helper.py`."""
    return _QUOTES.sub("", text)


def problem_with_version_file(path: str, text: str, is_path: Callable[[str], bool]) -> str:
    """A message if the file of a version manager names a program by its path, which can be any program; empty otherwise.

    `is_path` says whether a word names something in the file's folder.
    """
    words = [word.strip("\"'") for line in text.splitlines() for word in _COMMENT.sub("", line).split()]
    is_python = PurePosixPath(path).name.startswith(".python-version")  # uv takes a path there
    for word in words:
        if "path:" in word or (is_python and ("/" in word or is_path(word))):
            return "a file that says where a program is, instead of its version; write the version"
    return ""


def maps_prefixes(text: str) -> bool:
    """Whether a tsconfig.json or an import map lets names stand for any file in a folder: `"@/*": ["./src/*"]`, `"@/": "./src/"`."""
    return "\\u00" in text or _PREFIX_MAP.search(text) is not None  # escapes could hide the names


def package_sources(text: str) -> list[str]:
    """The hosts in a settings file from which packages may be fetched. Not the whole addresses, which may contain secrets."""
    return [*dict.fromkeys(host for host in _ADDRESS.findall(_SETTINGS_COMMENT.sub("", text)))][:_MAX_SOURCES]


def included_files(text: str) -> list[str]:
    """The words after `include`, `import` and the like in a task file: the names of further task files."""
    return [word for rest in _INCLUDE.findall(text) for word in task_words(rest)]


def problem_with_npm_settings(text: str) -> str:
    """A message if a .npmrc or pnpm-workspace.yaml makes npm run code that no command names; empty otherwise."""
    for number, line in enumerate(_LINE_BREAKS.split(text), 1):
        key = _END_OF_KEY.split(line.strip(), 1)[0].rstrip()
        if key.startswith(("#", ";")):
            continue
        if not _PLAIN_KEY.fullmatch(key):
            # The line is not quoted: the file may be a link to a private file of the user.
            return f"a file with a quote, a backslash or a `$` in the name of a setting, in line {number}; remove this line"
        if _NOT_LETTERS.sub("", key).lower() in _NPM_SETTINGS:
            shown = repr(key) if len(key) <= _MAX_SETTING else f"in line {number}"
            return (
                f"a file with the setting {shown}, which decides what npm runs; remove this line, and write in .mcp.json"
                " the command that should run"
            )
    return ""


def mapped_files(content: JsonObject) -> Iterator[str]:
    """The files that a package.json maps names to (`imports`, `exports`), under any condition."""
    pending = [content.get("imports"), content.get("exports")]
    while pending:
        match pending.pop():
            case str() as target:
                yield target
            case dict() as inner:
                pending += inner.values()
            case list() as inner:
                pending += inner
            case _:
                pass


def _texts(named: Json, name: str) -> Iterator[str]:
    """The strings in an object; with a name, only the string under this name."""
    for key, value in named.items() if isinstance(named, dict) else ():
        if isinstance(value, str) and (not name or key == name):
            yield value
