"""Recognise version managers (mise, asdf, pyenv, volta), which put programs called `python` and `node` into the `PATH`.

Such a program, a *shim*, runs the version that a file in its working folder names. The file can also name any other program: with
`node path:./tools` in a stranger's `.tool-versions`, the shim runs `./tools/bin/node`.
"""

import os
import shutil
from pathlib import PurePosixPath

from holdfast.model.real_path import real_path
from holdfast.model.search_path import absolute_search_path
from holdfast.model.untrusted_file import open_untrusted_file
from holdfast.resolve.command_words import is_node_or_python

_SHIMS = "shims"  # the folder of mise, asdf, pyenv, rbenv, nodenv and proto
_MANAGED_FOLDERS = (_SHIMS, ".volta")


def has_version_manager(search_path: str) -> bool:
    """Whether the shims of a version manager are in the `PATH`."""
    return any(name in _MANAGED_FOLDERS for name in search_path.replace(os.pathsep, "/").split("/"))


def is_interpreter_itself(command: str, search_path: str) -> bool:
    """Whether a command is Python or Node itself, not a shim or another script that decides what runs. False if it is not found."""
    program = shutil.which(command, path=absolute_search_path(search_path))
    if program is None:
        return False
    try:
        real = real_path(program)  # not `os.path.realpath`, which has no limit: a client can name any path
        names = (*PurePosixPath(program).parts, *PurePosixPath(real).parts)
        if _SHIMS in names or not is_node_or_python(real):
            return False
        descriptor = open_untrusted_file(real)
    except OSError:
        return False
    try:
        return os.read(descriptor, 2) != b"#!"
    except OSError:
        return False
    finally:
        os.close(descriptor)
