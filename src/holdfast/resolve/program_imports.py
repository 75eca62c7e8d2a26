"""Find the files that a Python or JavaScript source can import."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath

UNCHECKED = ""
"""Yielded in place of a path if some imports could not be checked: there are too many, or a source or folder cannot be read."""
_MAX_MODULE_DEPTH = 32
_MAX_NAME_BYTES = 255  # no file can have a longer name
_MAX_IMPORT_LIST_LENGTH = 2000  # the names in `from x import (…)`; the same number is in `_PYTHON_IMPORT`
_PYTHON_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from([\w. \t]{1,1000}?)import\b[ \t]*(?:\(([^)]{0,2000})|([^\n#;(]*))|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_CODING = re.compile(rb"^[ \t\f]*#[^\n]{0,200}?coding[:=][ \t]*([-\w.]{1,40})", re.MULTILINE)
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
# Any quoted relative path. It may not be an import, but hashing one file too many does no harm.
_JAVASCRIPT_IMPORT = re.compile(rb"[\"'`](\.{1,2}(?:/[^\"'`\n]{0,500})?)[\"'`]")
_JAVASCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_ADDED_SUFFIXES = (*_JAVASCRIPT_SUFFIXES, ".json", ".node")
_PYTHON_SUFFIXES = (".py", ".pyw")
_PYTHON_COMPILED_SUFFIXES = (".pyc", ".so", ".abi3.so")
_NAME = re.compile(r"[^\W\d]\w*")
_AS = re.compile(r"\bas\b")
COMPILED_SUFFIXES = (".pyc", ".so", ".node")
"""The suffixes of compiled modules. They are hashed, but not searched for imports."""
PYTHON_MODULES = (*_PYTHON_SUFFIXES, ".pyc", ".so")
JAVASCRIPT_MODULES = (".js", ".cjs", ".mjs", ".node")
_MAX_ENTRIES = 5000
_MAX_PACKAGES = 500


def may_be_source(path: str) -> bool:
    """Whether the file may be Python, JavaScript or TypeScript. Only such files are searched for imports."""
    return PurePosixPath(path).suffix in ("", *_PYTHON_SUFFIXES, *_JAVASCRIPT_SUFFIXES)


def may_be_javascript(path: str) -> bool:
    """Whether the file may be JavaScript or TypeScript."""
    name = PurePosixPath(path)
    return name.suffix in ("", *_JAVASCRIPT_SUFFIXES) and not name.name.startswith(".")


def import_candidates(path: str, source: bytes, roots: Iterable[str] = ()) -> Iterator[str]:
    """The paths at which the files that a source imports can be. Most of them do not exist.

    `roots` are the folders in which Python looks for modules, in addition to the folder of the source.
    """
    suffix, folder = PurePosixPath(path).suffix, path.rpartition("/")[0]
    if suffix in ("", *_JAVASCRIPT_SUFFIXES):
        yield from _imported_by_javascript(folder, source)
    if suffix in ("", *_PYTHON_SUFFIXES):
        # For Python, a CR ends a line too, and a form feed is a space.
        text = _decode_python(source).replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
        text = text.replace("\\\n", " ")
        if "\ufffd" in text:  # in a name, it would stand for letters that are not known
            yield UNCHECKED
        for root in dict.fromkeys((folder, *roots)):
            yield from _imported_by_python(folder, root, text)


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


def module_suffixes(path: str) -> tuple[str, ...]:
    """The suffixes of the modules that a source may load; of both languages if its name does not tell in which it is written."""
    suffix = PurePosixPath(path).suffix
    if suffix in _PYTHON_SUFFIXES:
        return PYTHON_MODULES
    return JAVASCRIPT_MODULES if suffix in _JAVASCRIPT_SUFFIXES else (*PYTHON_MODULES, *JAVASCRIPT_MODULES)


def module_names(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The names of the modules with these suffixes in a folder, and of its packages with a `/` at the end."""
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.endswith(suffixes):
                    yield entry.name
                elif ".py" in suffixes and entry.name.isidentifier() and entry.is_dir():
                    folders.append(entry.name)
            if next(entries, None) is not None:
                yield UNCHECKED
    except OSError:
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
    found = _CODING.search(source[:1000])
    coding = found[1].decode("ascii").lower().replace("_", "-") if found is not None else "utf-8"
    if coding not in _USUAL_CODINGS:
        return "\ufffd"
    text = source.decode(coding, "replace")
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _imported_by_python(folder: str, root: str, source: str) -> Iterator[str]:
    seen: set[str] = set()
    for found in _PYTHON_IMPORT.finditer(source):
        package, in_brackets, on_line, modules = found.groups()
        if found[0] in seen:
            continue
        seen.add(found[0])
        if modules is not None:
            for module in modules.split(","):
                # `import a . b as\tc`: white space may surround the dots, and any may surround `as`.
                name = "".join(_AS.split(module, 1)[0].split())
                yield from python_module_candidates(root, name)
            continue
        if len(in_brackets or "") == _MAX_IMPORT_LIST_LENGTH:
            yield UNCHECKED
        name = "".join(package.split())
        prefix = name.lstrip(".")
        base = _folder_above(folder, len(name) - len(prefix) - 1) if name != prefix else root
        if prefix:
            yield from python_module_candidates(base, prefix)
        if prefix.count(".") >= _MAX_MODULE_DEPTH:
            continue
        inner = "/".join((base, *filter(None, prefix.split("."))))
        imported = in_brackets or on_line or ""
        if "*" in imported:
            yield from _all_modules(inner)
        for each in dict.fromkeys(_NAME.findall(imported)):
            if len(os.fsencode(each)) <= _MAX_NAME_BYTES:
                yield from _module_candidates(f"{inner}/{each}")


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
    for name in dict.fromkeys(_JAVASCRIPT_IMPORT.findall(source)):
        yield from javascript_candidates(f"{folder}/{name.decode(errors='replace').rstrip('/')}")


def _is_package(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith("__init__.") for entry in islice(entries, _MAX_ENTRIES))
    except OSError:
        return False
