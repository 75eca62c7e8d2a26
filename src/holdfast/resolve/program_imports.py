"""Find the files that a Python or JavaScript source can import."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from urllib.parse import unquote

from holdfast.resolve.script_languages import JAVASCRIPT_SUFFIXES, PYTHON_SUFFIXES, Language

UNCHECKED = ""
"""Yielded instead of a path if some imports could not be checked: there are too many, or a source or folder cannot be read."""
_MAX_MODULE_DEPTH = 32
_MAX_NAME_BYTES = 255  # no file can have a longer name
_MAX_IMPORT_LIST = 2000  # how many characters between the brackets of `from x import (…)` are searched
# A match ends before the imported names: what looks like an import may be in a string or a comment, and must not hide one after it.
_PYTHON_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from([\w. \t]{1,1000}?)import\b|import\b)[ \t]*", re.MULTILINE
)
_PYTHON_IMPORT_CALL = re.compile(
    r"\b(?:__import__|import_module|run_module)\s{0,20}\(\s{0,20}[\"'](\.{0,9})([\w.]{1,1000})[\"']"
)
_NAMES = re.compile(r"[\w., \t*]*")
_NAMES_IN_BRACKETS = re.compile(r"\([\w\s,]*")
_COMMENT = re.compile(r"#[^\n]*")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_CODING = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(?:#|$)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_USUAL_CODINGS = (
    "utf-8",
    "utf8",
    "utf-8-sig",
    "ascii",
    "us-ascii",
    "latin-1",
    "iso-8859-1",
    "iso-8859-15",
    "cp1252",
)
# Any quoted relative path. It may not be an import, but hashing an extra file does no harm. The quotation marks are not
# part of a match: the one that ends a text in a comment may begin an import.
_JAVASCRIPT_IMPORT = re.compile(r"(?<=[\"'`])\.{1,2}(?:[/\\][^\"'`\n]*)?(?=[\"'`])")
_JAVASCRIPT_URL = re.compile(
    r"(?<=\bURL\()\s{0,20}[\"'`]([^\"'`\n]+)(?=[\"'`])"
)  # `new URL("worker.js", import.meta.url)`
_JAVASCRIPT_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\}|([0-3]?[0-7]{1,2})|(\r?\n)|([^\w\s]))"
)
_URL_IGNORES = str.maketrans("\\", "/", "\t\r\n")
_ADDED_SUFFIXES = (*JAVASCRIPT_SUFFIXES, ".json", ".node")
_PYTHON_COMPILED_SUFFIXES = (".pyc", ".so", ".abi3.so")
_NAME = re.compile(r"[^\W\d]\w*")
_AS = re.compile(r"\bas\b")
_CHANGES_SEARCH = re.compile(
    r"\bsys\s*\.\s*path\b|\bfrom[ \t]+sys[ \t]+import\b.*\bpath\b|\baddsitedir\b|\b__path__\b"
)
_QUOTED = re.compile(r"""["']([^"']+)["']""")
_QUOTED_PATH = re.compile(r"(?<=[\"'])[\w.-][\w./-]{0,200}(?=[\"'])")
COMPILED_SUFFIXES = (".pyc", ".so", ".node")
"""The suffixes of compiled modules. They are hashed, but not searched for imports."""
PYTHON_MODULES = (*PYTHON_SUFFIXES, ".pyc", ".so")
JAVASCRIPT_MODULES = (".js", ".cjs", ".mjs", ".node")
_MAX_ENTRIES = 5000
_MAX_PACKAGES = 500


def import_candidates(
    path: str, source: bytes, languages: Collection[Language], search_folders: Iterable[str] = ()
) -> Iterator[str]:
    """The paths at which the files that a source imports can be. Most of them do not exist.

    `languages` are the languages that the source may be in. `search_folders` are the folders in which Python looks for modules, in addition
    to the folder of the source.
    """
    folder = path.rpartition("/")[0]
    if Language.JAVASCRIPT in languages:
        yield from _imported_by_javascript(folder, source)
    if Language.PYTHON in languages:
        # For Python, a CR ends a line too, and a form feed is a space.
        text = _decode_python(source).replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
        text = text.replace("\\\n", " ")
        if "\ufffd" in text:  # in a name, it would stand for letters that are not known
            yield UNCHECKED
        statements, is_whole = _import_statements(text)
        if not is_whole:
            yield UNCHECKED
        places = dict.fromkeys((folder, *search_folders))
        for root in places:
            yield from _imported_by_python(folder, root, statements)
        for dots, name in dict.fromkeys(_PYTHON_IMPORT_CALL.findall(text)):
            for base in (_folder_above(folder, len(dots) - 1),) if dots else places:
                yield from python_module_candidates(base, name)


def added_search_folders(path: str, source: bytes) -> list[str]:
    """The folders that a Python source may add to those in which Python looks for modules: `sys.path.insert(0, "lib")`.

    If the source changes `sys.path`, these are all paths in quotes, relative to its own folder and to the one above. Most of them do
    not exist.
    """
    text = _decode_python(source)
    if not _CHANGES_SEARCH.search(text):
        return []
    folder = path.rpartition("/")[0]
    names = [*dict.fromkeys(_QUOTED_PATH.findall(text))][:_MAX_PACKAGES]
    above = folder.rpartition("/")[0]
    return [f"{base}/{name}" for base in (folder, above) for name in ("", *names)]


def inline_metadata_texts(source: bytes) -> list[str]:
    """The texts in quotes in the block with which a Python script says what `uv run` installs: `# foo = { path = "./foo" }`."""
    texts: list[str] = []
    is_inside = False
    for line in _decode_python(source).splitlines():
        if line.rstrip() == "# /// script":
            is_inside = True
        elif is_inside and (not line.startswith("#") or line.rstrip() == "# ///"):
            break
        elif is_inside:
            texts += _QUOTED.findall(line)
    return texts[:_MAX_PACKAGES]


def python_module_candidates(folder: str, name: str) -> Iterator[str]:
    """The paths of the files that Python runs to import a module, if it is in this folder. Most of them do not exist."""
    parts = name.split(".", _MAX_MODULE_DEPTH)
    if len(parts) > _MAX_MODULE_DEPTH:
        yield UNCHECKED
    inner = folder
    for part in parts[:_MAX_MODULE_DEPTH]:
        if not part or len(os.fsencode(part)) > _MAX_NAME_BYTES:
            return
        inner = f"{inner}/{part}"
        yield from _module_candidates(inner)
    yield f"{inner}/__main__.py"
    yield f"{inner}/__main__.pyc"


def javascript_candidates(path: str) -> Iterator[str]:
    """The paths of the files that JavaScript may load for an imported path. Most of them do not exist."""
    yield path
    for suffix in _ADDED_SUFFIXES:
        yield f"{path}{suffix}"
        yield f"{path}/index{suffix}"
    if path.endswith(".js"):  # in TypeScript, the import of x.ts is written x.js
        yield f"{path.removesuffix('.js')}.ts"
    yield f"{path}/package.json"


def module_suffixes(languages: frozenset[Language]) -> tuple[str, ...]:
    """The suffixes of the modules that a script may load; of both languages if it is in neither."""
    python = PYTHON_MODULES if Language.PYTHON in languages else ()
    javascript = JAVASCRIPT_MODULES if Language.JAVASCRIPT in languages else ()
    return (*python, *javascript) or (*PYTHON_MODULES, *JAVASCRIPT_MODULES)


def module_names(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The names of the modules with these suffixes in a folder, and of its packages with a `/` at the end."""
    names: list[str] = []  # not yielded here: a caller that stops early would leave the folder open
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.endswith(suffixes):
                    names.append(entry.name)
                elif ".py" in suffixes and entry.name.isidentifier() and entry.is_dir():
                    folders.append(entry.name)
            is_complete = next(entries, None) is None
    except OSError:
        is_complete = False
    yield from names
    if not is_complete:
        yield UNCHECKED
    for name in folders[:_MAX_PACKAGES]:
        if _is_package(f"{folder}/{name}"):
            yield f"{name}/"
    if len(folders) > _MAX_PACKAGES:
        yield UNCHECKED


def _module_candidates(path: str) -> Iterator[str]:
    for inner in (path, f"{path}/__init__"):
        for suffix in (".py", *_PYTHON_COMPILED_SUFFIXES):
            yield f"{inner}{suffix}"


def _decode_python(source: bytes) -> str:
    """The text of a Python source. Python compares names in their NFKC form."""
    has_mark = source.startswith(_BYTE_ORDER_MARK)
    source = source.removeprefix(_BYTE_ORDER_MARK)
    coding = "utf-8" if has_mark else _python_coding(source)
    if coding not in _USUAL_CODINGS:
        return "\ufffd"
    text = source.decode(coding, "replace")
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _python_coding(source: bytes) -> str:
    """The encoding that a comment in one of the first two lines names. Python reads no further line, however long these are."""
    for line in _LINE_END.split(source, 2)[:2]:
        if matched := _CODING.match(line):
            return matched[1].decode("ascii", "replace").lower().replace("_", "-")
        if not _BLANK_OR_COMMENT.match(line):
            break
    return "utf-8"


def _import_statements(source: str) -> tuple[dict[tuple[str | None, str], None], bool]:
    """The import statements of a source: for each, the package after `from` (None for `import`) and the names. And whether no names are missing."""
    statements: dict[tuple[str | None, str], None] = {}
    are_all = True
    for statement in _PYTHON_IMPORT.finditer(source):
        names, is_whole = _imported_names(source, statement.end())
        statements[statement[1], names] = None
        are_all &= is_whole
    return statements, are_all


def _imported_by_python(
    folder: str, root: str, statements: Iterable[tuple[str | None, str]]
) -> Iterator[str]:
    modules: set[str] = set()
    for package, imported in statements:
        if package is None:
            for module in imported.split(","):
                # `import a . b as\tc`: white space may surround the dots and `as`.
                name = "".join(_AS.split(module, 1)[0].split())
                yield from python_module_candidates(root, name)
            continue
        name = "".join(package.split())
        prefix = name.lstrip(".")
        base = _folder_above(folder, len(name) - len(prefix) - 1) if name != prefix else root
        if prefix:
            yield from python_module_candidates(base, prefix)
        if prefix.count(".") >= _MAX_MODULE_DEPTH:
            continue
        inner = "/".join((base, *filter(None, prefix.split("."))))
        if "*" in imported:
            yield from _all_modules(inner)
        for module in (f"{inner}/{each}" for each in _NAME.findall(imported)):
            if (
                module not in modules
                and len(os.fsencode(module)) - len(os.fsencode(inner)) <= _MAX_NAME_BYTES
            ):
                modules.add(module)
                yield from _module_candidates(module)


def _imported_names(source: str, start: int) -> tuple[str, bool]:
    """The names that an import statement lists from this position on, and whether these are all of them."""
    if not source.startswith("(", start):
        line = _NAMES.match(source, start)
        return line[0] if line is not None else "", True
    text = _COMMENT.sub("", source[start : start + _MAX_IMPORT_LIST])  # a comment may contain a bracket
    names = _NAMES_IN_BRACKETS.match(text)
    return names[0] if names is not None else "", names is None or names.end() < len(text)


def _all_modules(folder: str) -> Iterator[str]:
    """All modules of a package: `from package import *` imports those that its `__all__` names."""
    if os.path.isdir(folder):  # noqa: PTH112 - a name, not a path yet
        for name in module_names(folder, PYTHON_MODULES):
            if name == UNCHECKED:
                yield UNCHECKED
            else:
                yield from (
                    _module_candidates(f"{folder}/{name}") if name.endswith("/") else (f"{folder}/{name}",)
                )


def _folder_above(folder: str, levels: int) -> str:
    for _ in range(min(levels, _MAX_MODULE_DEPTH)):
        folder = folder.rpartition("/")[0]
    return folder


def _imported_by_javascript(folder: str, source: bytes) -> Iterator[str]:
    text = source.decode(errors="replace")
    names = _JAVASCRIPT_IMPORT.findall(text) + _JAVASCRIPT_URL.findall(text)
    if "\\" in text:  # `'.\\/x.js'` and `'\\x2e/x.js'` are `./x.js`
        names += _JAVASCRIPT_IMPORT.findall(_JAVASCRIPT_ESCAPE.sub(_unescaped, text))
    for name in dict.fromkeys(names):
        # A module's name is a URL, too: `./x.js?v=1` and `./%78.js` are x.js.
        url = unquote(re.split(r"[?#]", name, maxsplit=1)[0].translate(_URL_IGNORES))
        for path in dict.fromkeys((name, url)):
            yield from javascript_candidates(f"{folder}/{path.rstrip('/')}")


def _unescaped(escape: re.Match[str]) -> str:
    two, four, more, octal, line_end, other = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if digits := two or four or more:
        return chr(min(int(digits, 16), 0x10FFFF))
    return "" if line_end else other


def _is_package(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith("__init__.") for entry in islice(entries, _MAX_ENTRIES))
    except OSError:
        return False
