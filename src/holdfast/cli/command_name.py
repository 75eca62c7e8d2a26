"""The name under which the user can run this program from a shell."""

import os
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

_NAME = "holdfast"


@cache
def command_name() -> str:
    """`holdfast`, or the quoted path of this program if the shell would find no program or another one under that name."""
    running = Path(sys.argv[0])
    found = shutil.which(_NAME)
    if running.name != _NAME or not running.is_file():  # started in another way, such as `python -m`
        return _NAME
    if found and Path(found).samefile(running):
        return _NAME
    path = running.absolute()
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))
