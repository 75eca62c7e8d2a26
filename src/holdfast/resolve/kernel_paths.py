"""Recognise paths below `/proc` and `/dev/fd`. They lead elsewhere in each process, so Holdfast cannot check what a server finds there."""

import re
from collections.abc import Iterator
from posixpath import normpath
from urllib.parse import unquote

from holdfast.model.mounts import is_within
from holdfast.model.server import TRUSTED_SOURCES, ServerSpec, Stdio
from holdfast.resolve.check_transport import RefusedEntryError

_FOLDERS = ("/proc", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr")
# Relative to a folder that the command may change into: `env -C / node proc/self/cwd/server.js`.
_INSIDE = re.compile(
    r"(?<![\w.-])(?:proc/[./]*+(?:self|thread-self|[0-9]++)|dev/[./]*+(?:fd|stdin|stdout|stderr))(?![\w.-])"
)
_SEPARATORS = re.compile(r"[\s;|&()<>=:,`{}]+")
_QUOTES = re.compile(r"[\"'\\]")
_NO_FOLDER = "-@$~"  # before the first `/` of a word: `-r/proc/self/cwd/x.js`, `$A/../proc`


def check_no_kernel_paths(server: ServerSpec) -> None:
    """Raise `RefusedEntryError` if the entry of a project or a client names a path below `/proc` or `/dev/fd`, in any spelling."""
    stdio = server.transport
    if server.source in TRUSTED_SOURCES or not isinstance(stdio, Stdio):
        return
    folder = server.origin.rpartition("/")[0] or "/-"  # a client's folder is not known here
    values = {"command": stdio.command, **{f"env: {name}": value for name, value in stdio.env.items()}}
    values.update((f"args[{index}]", word) for index, word in enumerate(stdio.args))
    for key, value in values.items():
        if names_kernel_path(value, folder):
            raise RefusedEntryError(
                f"{key} names a path below /proc or /dev/fd, which leads elsewhere in each process, so it cannot be checked. "
                "Write the path to which it should lead, such as server.js."
            )


def names_kernel_path(text: str, folder: str = "") -> bool:
    """Whether a text contains such a path. Relative paths are relative to `folder`."""
    decoded = unquote(text)
    return any(
        _INSIDE.search(each) is not None or any(map(is_kernel_path, _paths(each, folder)))
        for each in dict.fromkeys((text, decoded, _QUOTES.sub("", decoded)))
    )


def is_kernel_path(path: str) -> bool:
    """Whether an absolute path, as it is written, is one of these folders or lies below one."""
    normal = "/" + normpath(path).lstrip("/")
    return any(is_within(normal, folder) for folder in _FOLDERS)


def _paths(text: str, folder: str) -> Iterator[str]:
    for word in _SEPARATORS.split(text):
        before, slash, after = word.partition("/")
        if slash and ("proc" in after or "dev" in after):
            yield f"/{after}" if not before or before[0] in _NO_FOLDER else f"{folder}/{word}"
