"""Which files of the project a program's source imports by name, in Python and JavaScript."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

_PYTHON_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(([^)]{0,2000})|([^\n#;(]*))|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_SCRIPT_IMPORT = re.compile(
    rb"(?:\b(?:require|import)[ \t]*\([ \t]*|\b(?:from|import)[ \t]*)[\"'](\.{1,2}/[^\"'\n]{1,500})[\"']"
)
_SCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def imported_files(path: str, source: bytes, roots: Iterable[str] = ()) -> Iterator[str]:
    """The paths at which the imported files can be. Most of them do not exist.

    `roots` are the folders in which Python looks for modules, besides the file's own.
    """
    suffix = PurePosixPath(path).suffix
    if suffix in _SCRIPT_SUFFIXES:
        yield from _imported_by_script(path, source)
    elif suffix in ("", ".py", ".pyw"):
        folder = PurePosixPath(path).parent
        for root in dict.fromkeys((folder, *map(PurePosixPath, roots))):
            yield from _imported_by_python(folder, root, source)


def module_files(folder: PurePosixPath, name: str) -> Iterator[str]:
    """The files that Python runs to import a module, if it is in this folder."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        inner = folder.joinpath(*parts[:length])
        yield f"{inner}.py"
        yield f"{inner}/__init__.py"
    yield f"{folder.joinpath(*parts)}/__main__.py"


def _imported_by_python(folder: PurePosixPath, root: PurePosixPath, source: bytes) -> Iterator[str]:
    for found in _PYTHON_IMPORT.finditer(source):
        package, in_brackets, on_line, modules = found.groups()
        if modules is not None:
            for module in modules.split(b","):
                yield from module_files(root, module.split(b" as ")[0].strip().decode("ascii", "replace"))
            continue
        name = package.decode("ascii", "replace")
        above = len(name) - len(name.lstrip("."))
        if above > len(folder.parents) + 1:
            continue
        base = root if above == 0 else (folder, *folder.parents)[above - 1]
        prefix = name.lstrip(".")
        if prefix:
            yield from module_files(base, prefix)
        for imported in _NAME.findall(in_brackets or on_line or b""):
            inner = (
                base.joinpath(*prefix.split("."), imported.decode()) if prefix else base / imported.decode()
            )
            yield f"{inner}.py"
            yield f"{inner}/__init__.py"


def _imported_by_script(path: str, source: bytes) -> Iterator[str]:
    folder = PurePosixPath(path).parent
    for found in _SCRIPT_IMPORT.finditer(source):
        inner = folder / found[1].decode(errors="replace")
        yield str(inner)
        for suffix in (*_SCRIPT_SUFFIXES, ".json"):
            yield f"{inner}{suffix}"
        if inner.suffix == ".js":  # in TypeScript, the import of x.ts is written x.js
            yield str(inner.with_suffix(".ts"))
        yield f"{inner}/index.js"
        yield f"{inner}/index.ts"
