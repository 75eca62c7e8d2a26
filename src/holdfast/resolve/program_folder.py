"""List the code in a folder: a new module there can take the place of one that a program imports."""

import os
from collections.abc import Iterator
from itertools import islice

from holdfast.resolve.program_imports import UNCHECKED

COMPILED_SUFFIXES = (".pyc", ".so", ".node")
_MODULE_SUFFIXES = (".py", ".pyw", ".js", ".cjs", ".mjs", *COMPILED_SUFFIXES)
_MAX_ENTRIES = 5000
_MAX_PACKAGES = 500


def code_names(folder: str) -> Iterator[str]:
    """The names of the modules in a folder, and of its packages with a `/`."""
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.endswith(_MODULE_SUFFIXES):
                    yield entry.name
                elif entry.name.isidentifier() and entry.is_dir():
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


def _is_package(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith("__init__.") for entry in islice(entries, _MAX_ENTRIES))
    except OSError:
        return False
