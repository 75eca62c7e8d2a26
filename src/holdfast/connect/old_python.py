"""Recognize Python versions that look for modules in the working folder whatever the environment says."""

import os
import re
import shutil
from pathlib import PurePath

_PYTHON = re.compile(r"(?:python|pypy)(\d)(?:\.(\d+))?")
_SAFE_PATH_SINCE = (3, 11)


def ignores_safe_path(command: str, search_path: str) -> bool:
    """Whether the command is a Python before 3.11, which does not know `PYTHONSAFEPATH`. Its file's name tells the version."""
    real = os.path.realpath(shutil.which(command, path=search_path) or command)
    found = _PYTHON.fullmatch(PurePath(real).name)
    if found is None:
        return False
    major, minor = int(found[1]), int(found[2] or 0)
    return (major, minor) < _SAFE_PATH_SINCE
