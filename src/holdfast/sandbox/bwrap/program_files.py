"""Find the files that a program needs besides the executed one: the package of a script, and the sources of editable installs.

Nothing inside a root is read, so that the files that a server can change do not decide what is mounted.
"""

import ast
import os
import pwd
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import PurePath

from holdfast.model.mounts import is_within
from holdfast.sandbox.opened_path import OpenedPath, PathOpener

_MANIFESTS = ("package.json", "pyproject.toml", "setup.py", "setup.cfg", "deno.json")
_MAX_LEVELS = 8  # how far above a script its manifest may be
_MAX_SIBLINGS = 60  # each needs a descriptor and a mount
_MAX_ENTRIES = 5000
_MAX_PATH_FILES = 100  # `.pth` files and finder modules of one `site-packages`
_FILE_BYTES = 64 * 1024
# Folders that may contain several programs, so they are never mounted for one of these.
_SHARED_FOLDERS = ("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/opt", "/srv", "/mnt", "/media")
# In the `__editable___…_finder.py` that setuptools writes: a dict from each package to its folder.
_MAPPING = re.compile(rb"^MAPPING\b[^=\n]*=\s*(\{[^\n]*\})", re.MULTILINE)


def script_files(opener: PathOpener, script: OpenedPath, protected: Collection[str]) -> Iterator[OpenedPath]:
    """What a script needs to run: its package's folder if it has a manifest, else the script and the sources next to it.

    `protected` are Holdfast's own folders. A folder that overlaps with one is not mounted.
    """
    assert script.folder is not None
    for folder in islice(script.folder.self_and_parents(), _MAX_LEVELS):
        if is_shared_folder(folder.path, protected):
            break
        opened = opener.reopen(folder)
        if any(
            (manifest := opener.child(opened, name)) is not None and manifest.is_file for name in _MANIFESTS
        ):
            yield opened
            return
    yield script
    yield from _siblings(opener, script)


def editable_folders(
    opener: PathOpener, site_packages: OpenedPath, protected: Collection[str]
) -> Iterator[OpenedPath]:
    """The folders that the packages in a `site-packages` were installed from, for editable installs."""
    for name in islice(_names(site_packages, (".pth", "_finder.py")), _MAX_PATH_FILES):
        file = opener.child(site_packages, name)
        if file is None or not file.is_file:
            continue
        for path in _paths_in(name, file.read_start(_FILE_BYTES)):
            normal = os.path.normpath(path)
            if is_within(normal, site_packages.path) or is_shared_folder(normal, protected):
                continue
            with suppress(OSError, ValueError):
                folder = opener.open(normal, links="follow")
                is_root = folder in opener.stop_at
                if folder.is_folder and not is_root and not is_shared_folder(folder.path, protected):
                    yield folder


def is_shared_folder(path: str, protected: Collection[str]) -> bool:
    """Whether a folder may contain more than one program, is or contains a home folder, or overlaps with a `protected` path."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = "/root"
    homes = {os.path.realpath(home), os.path.realpath(os.environ.get("HOME", home))}
    return (
        path in _SHARED_FOLDERS
        or PurePath(path).parent == PurePath("/home")
        or any(is_within(one, path) for one in homes)
        or any(is_within(own, path) or is_within(path, own) for own in protected)
    )


def _siblings(opener: PathOpener, script: OpenedPath) -> Iterator[OpenedPath]:
    """The files with the same suffix next to a script, which it may import. Empty if there are more than `_MAX_SIBLINGS`."""
    suffix = PurePath(script.path).suffix
    if not suffix or script.folder is None:
        return
    folder = opener.reopen(script.folder)
    names = [*islice(_names(folder, (suffix,)), _MAX_SIBLINGS + 1)]
    if len(names) > _MAX_SIBLINGS:
        return
    for name in names:
        sibling = opener.child(folder, name)
        if sibling is not None and sibling.is_file and sibling.identity != script.identity:
            yield sibling


def _names(folder: OpenedPath, suffixes: tuple[str, ...]) -> Iterator[str]:
    try:
        descriptor = folder.open_to_read()
    except OSError:
        return
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in islice(entries, _MAX_ENTRIES) if entry.name.endswith(suffixes)]
    finally:
        os.close(descriptor)
    yield from sorted(names)


def _paths_in(name: str, content: bytes) -> Iterator[str]:
    """The absolute paths in a `.pth` file, or in the finder module that setuptools writes."""
    if name.endswith(".pth"):
        lines = (os.fsdecode(line).strip() for line in content.splitlines())
        yield from (line for line in lines if line.startswith("/") and "\0" not in line)
        return
    matched = _MAPPING.search(content)
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        mapping: object = ast.literal_eval(os.fsdecode(matched[1])) if matched else {}
        if isinstance(mapping, dict):
            for path in mapping.values():  # pyright: ignore[reportUnknownVariableType]
                if isinstance(path, str) and path.startswith("/") and "\0" not in path:
                    yield path
