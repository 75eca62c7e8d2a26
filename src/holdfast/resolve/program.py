"""The files of a project that a server's command runs, with a hash of each."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from holdfast.model.visible_text import quote
from holdfast.resolve.bytecode import is_compiled_module

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./@+-]+")
_NAME_ONLY = "only the name is checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The files of a project that a command names, and the files that they import."""

    files: Mapping[str, str]
    """The hash of each file, by its path in the project."""
    stamps: frozenset[tuple[str, int, int]] = frozenset()
    """The path, inode and change time of each file. They differ if a file was replaced, even if it was put back later."""
    problem: str = ""
    """Why the program cannot be checked; empty if it can."""
    is_partial: bool = False
    """Whether some of its files could not be found, because there are too many or their names are computed."""
    sibling_modules: frozenset[str] = frozenset()
    """Other modules in the folders of its source files. Only their names are checked: a new module could be imported
    instead of the approved one."""
    package_sources: tuple[str, ...] = ()
    """The hosts that its files of settings name to fetch packages from. For the review: the files themselves are hashed."""
    unapproved_part: str = ""
    """The part at which the check stopped, because it is new or has changed; empty if everything was read."""

    @property
    def parts(self) -> Mapping[str, str]:
        """Everything that must stay as it was approved: the hash of each file, and the names of the sibling modules."""
        return {**dict.fromkeys(self.sibling_modules, _NAME_ONLY), **self.files}

    @property
    def problem_with_bytecode(self) -> str:
        """Why the program cannot be approved: Python may run compiled modules instead of the sources that are shown. Empty if there are none."""
        compiled = next(filter(is_compiled_module, self.files), "")
        if not compiled:
            return ""
        return (
            f"Python may run {quote_path(compiled)} instead of its source, and compiled code cannot be reviewed. Delete the folder "
            "__pycache__; so that Python does not write it again, add -B to the options of Python"
        )

    @property
    def digest(self) -> str:
        """A hash of all parts; empty if the command names no file of the project."""
        if not self.parts:
            return ""
        return hashlib.sha256(msgspec.json.encode(sorted(self.parts.items()))).hexdigest()


def describe_change(before: Mapping[str, str], program: Program) -> str:
    """Describe which parts of a program have changed, in a few words: `server.py changed, json.py is new`."""
    now = program.parts
    if part := program.unapproved_part:
        return f"{quote_path(part)} {'changed' if part in before else 'is new'}"
    changed = [f"{quote_path(path)} changed" for path in now if path in before and before[path] != now[path]]
    new = [f"{quote_path(path)} is new" for path in now if path not in before]
    gone = [f"{quote_path(path)} is gone" for path in before if path not in now]
    changes = [*changed, *new, *gone]
    return ", ".join(changes[:5]) + (f" and {len(changes) - 5} more" if len(changes) > 5 else "")


def quote_path(path: str) -> str:
    """The path, for a message. Unless it is a plain one, it is quoted, so that it cannot pose as another text."""
    return path if _PLAIN_PATH.fullmatch(path) else quote(path)
