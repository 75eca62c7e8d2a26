"""The folders of a `PATH` in which programs are looked for."""

import os
from collections.abc import Mapping


def absolute_search_path(search_path: str) -> str:
    """The `PATH` without empty and relative entries, which stand for the current folder and folders in it: what is in them is not trusted."""
    folders = [folder for folder in search_path.split(os.pathsep) if folder.startswith("/")]
    return os.pathsep.join(folders) or os.defpath  # an empty PATH stands for the current folder, too


def with_absolute_search_path(env: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of a process, with an absolute `PATH`."""
    path = env.get("PATH")
    if path is None or (absolute := absolute_search_path(path)) == path:
        return env
    return {**env, "PATH": absolute}
