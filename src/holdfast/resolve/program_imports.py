"""Find the files that a Python or JavaScript source imports."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

UNCHECKED = ""
"""Yielded instead of a path if a source imports more than is looked for."""
_MAX_MODULE_DEPTH = 32
_MAX_NAME_BYTES = 255  # no file can have a longer name
_MAX_NAMES = 2000  # bytes of the names in `from x import (…)`
_PYTHON_IMPORT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]{0,2000})|([^\n#;(]*))|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
# Any quoted relative path: what is not imported is at most hashed in vain.
_SCRIPT_IMPORT = re.compile(rb"[\"'`](\.{1,2}(?:/[^\"'`\n]{0,500})?)[\"'`]")
_SCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_RESOLVED_SUFFIXES = (*_SCRIPT_SUFFIXES, ".json", ".node")
_PYTHON_SUFFIXES = (".py", ".pyw")
_COMPILED_SUFFIXES = (".pyc", ".so", ".abi3.so")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def is_source(path: str) -> bool:
    """Whether the file may be Python or JavaScript, so that it is searched for imports."""
    return PurePosixPath(path).suffix in ("", *_PYTHON_SUFFIXES, *_SCRIPT_SUFFIXES)


def imported_files(path: str, source: bytes, roots: Iterable[str] = ()) -> Iterator[str]:
    """The paths at which the imported files can be. Most of them do not exist.

    `roots` are the folders in which Python looks for modules, besides the file's own.
    """
    suffix, folder = PurePosixPath(path).suffix, path.rpartition("/")[0]
    if suffix in ("", *_SCRIPT_SUFFIXES):
        yield from _imported_by_script(folder, source)
    if suffix in ("", *_PYTHON_SUFFIXES):
        source = source.replace(b"\\\n", b" ")
        for root in dict.fromkeys((folder, *roots)):
            yield from _imported_by_python(folder, root, source)


def module_files(folder: str, name: str) -> Iterator[str]:
    """The files that Python runs to import a module, if it is in this folder."""
    parts = name.split(".", _MAX_MODULE_DEPTH)
    if len(parts) > _MAX_MODULE_DEPTH:
        yield UNCHECKED
    inner = folder
    for part in parts[:_MAX_MODULE_DEPTH]:
        if not part or len(os.fsencode(part)) > _MAX_NAME_BYTES:
            return
        inner = f"{inner}/{part}"
        yield from _module_at(inner)
    yield f"{inner}/__main__.py"
    yield f"{inner}/__main__.pyc"


def resolved_script_files(path: str) -> Iterator[str]:
    """The files that JavaScript may load for a path without a suffix."""
    yield path
    for suffix in _RESOLVED_SUFFIXES:
        yield f"{path}{suffix}"
        yield f"{path}/index{suffix}"
    if path.endswith(".js"):  # in TypeScript, the import of x.ts is written x.js
        yield f"{path.removesuffix('.js')}.ts"
    yield f"{path}/package.json"


def _module_at(path: str) -> Iterator[str]:
    for inner in (path, f"{path}/__init__"):
        for suffix in (".py", *_COMPILED_SUFFIXES):
            yield f"{inner}{suffix}"


def _imported_by_python(folder: str, root: str, source: bytes) -> Iterator[str]:
    seen: set[bytes] = set()
    for found in _PYTHON_IMPORT.finditer(source):
        package, in_brackets, on_line, modules = found.groups()
        if found[0] in seen:
            continue
        seen.add(found[0])
        if modules is not None:
            for module in modules.split(b","):
                yield from module_files(root, module.split(b" as ")[0].strip().decode("ascii", "replace"))
            continue
        if len(in_brackets or b"") == _MAX_NAMES:
            yield UNCHECKED
        name = package.decode("ascii", "replace")
        prefix = name.lstrip(".")
        base = _folder_above(folder, len(name) - len(prefix) - 1) if name != prefix else root
        if prefix:
            yield from module_files(base, prefix)
        if prefix.count(".") >= _MAX_MODULE_DEPTH:
            continue
        inner = "/".join((base, *filter(None, prefix.split("."))))
        for imported in dict.fromkeys(_NAME.findall(in_brackets or on_line or b"")):
            if len(imported) <= _MAX_NAME_BYTES:
                yield from _module_at(f"{inner}/{imported.decode()}")


def _folder_above(folder: str, levels: int) -> str:
    for _ in range(min(levels, _MAX_MODULE_DEPTH)):
        folder = folder.rpartition("/")[0]
    return folder


def _imported_by_script(folder: str, source: bytes) -> Iterator[str]:
    for name in dict.fromkeys(_SCRIPT_IMPORT.findall(source)):
        yield from resolved_script_files(f"{folder}/{name.decode(errors='replace').rstrip('/')}")
