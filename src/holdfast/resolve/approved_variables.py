"""Some variables change which code a server runs. A project's entry may set those for which its approval covers this code.

`PYTHONPATH` may name folders of the project: every Python module in them is a part of the program (`read_program`).
`NODE_OPTIONS` may have only options that load no code. All other variables of this kind are refused.
"""

import os
import re
from collections.abc import Mapping
from pathlib import PurePath

PYTHON_PATH = "PYTHONPATH"
_NODE_OPTIONS = "NODE_OPTIONS"
_MAX_FOLDERS = 20
# No variable (`$`), no empty name (the working folder) and no absolute path. `_is_folder_of_project` excludes `..`.
_FOLDER = re.compile(r"(?:\./)?[\w.@+ -]+(?:/[\w.@+ -]+)*/?")
# Options of Node that neither load code nor write a file.
_NODE_OPTION = re.compile(
    r"--(?:max-old-space-size|max-semi-space-size|stack-trace-limit|max-http-header-size)=\d{1,9}"
    r"|--(?:no-warnings|no-deprecation|trace-warnings|trace-deprecation|trace-uncaught|enable-source-maps)"
    r"|--unhandled-rejections=[a-z-]{1,30}|--dns-result-order=[a-z0-9]{1,20}"
)


def is_covered_by_approval(name: str, value: str, folder: str) -> bool:
    """Whether the approval of a project's entry covers all code that the variable names. `folder` is the project's."""
    if name == _NODE_OPTIONS:
        return all(_NODE_OPTION.fullmatch(option) for option in value.split())
    if name != PYTHON_PATH or os.pathsep in folder:
        return False
    names = value.split(os.pathsep)
    return len(names) <= _MAX_FOLDERS and all(map(_is_folder_of_project, names))


def what_approval_covers(name: str) -> str:
    """What an approval covers of the variable, to follow the reason of a refusal; empty if it covers nothing."""
    if name == PYTHON_PATH:
        return (
            ". An approval covers only folders of the project, as relative paths without variables and without `..`, such as "
            "src:lib"
        )
    if name == _NODE_OPTIONS:
        return ". An approval covers only options that load no code, such as --max-old-space-size=4096"
    return ""


def module_folders(env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of the project, as relative paths, in which Python finds modules because the entry's `PYTHONPATH` names them."""
    value = env.get(PYTHON_PATH, "")
    return tuple(dict.fromkeys(value.split(os.pathsep))) if value else ()


def absolute_python_path(folders: tuple[str, ...], project: str) -> str:
    """The value of `PYTHONPATH` for these folders, as absolute paths, so that a program that changes its working folder finds the same modules."""
    return os.pathsep.join(os.path.normpath(PurePath(project, folder)) for folder in folders)


def _is_folder_of_project(name: str) -> bool:
    return _FOLDER.fullmatch(name) is not None and ".." not in name.split("/") and len(name) <= 1000
