"""What a program needs to read to run at all: itself, and the runtime it belongs to."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch

_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/", "/gnu/store/")
_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
_MARKS = ("pyvenv.cfg", "lib/node_modules", "include/node")
_LONGEST_CHAIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A program's real place, and the files and folders outside the system that it needs, by real path."""

    program: str
    needs: tuple[str, ...]


def runtime(launch: Launch) -> Runtime:
    """Find the program as its own PATH and folder would, and what it needs.

    Only what is plainly a runtime is shown as a folder (an environment of Python's, a Node installation, a
    `node_modules`); of anything else, the one file.
    """
    program = _located(launch)
    needs = dict.fromkeys(need for path in _chain(program, launch) for need in _needs_of(path))
    return Runtime(program=program, needs=tuple(needs))


def runtime_of(program: str) -> tuple[str, ...]:
    """What one program needs whose place is known."""
    launch = Launch(argv=(program,), env={}, cwd="/")
    return runtime(launch).needs


def _located(launch: Launch) -> str:
    name = launch.argv[0] if launch.argv else ""
    found = shutil.which(
        os.path.join(launch.cwd, name) if "/" in name else name,  # noqa: PTH118 - a name, not a path yet
        path=launch.env.get("PATH", os.defpath),
    )
    if found is None or "\0" in name:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {name!r}: there is no such program. Install it, or correct the server's command.",
            command=name,
        )
    path = Path(os.path.abspath(found))  # noqa: PTH100 - the last link stays: it tells Python its environment
    return str(Path(os.path.realpath(path.parent)) / path.name)


def _chain(program: str, launch: Launch) -> Iterator[str]:
    """The program, what it links to, and the interpreters of its scripts, each by its real folder."""
    path = program
    for _ in range(_LONGEST_CHAIN):
        yield path
        link = Path(path)
        if link.is_symlink():
            target = link.parent / link.readlink()
            path = str(Path(os.path.realpath(target.parent)) / target.name)
        elif interpreter := _interpreter(path, launch):
            path = interpreter
        else:
            return


def _interpreter(path: str, launch: Launch) -> str | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - it may be anything
            line = file.readline(256)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if len(words) > 1 and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words:
        return None
    found = shutil.which(words[0], path=launch.env.get("PATH", os.defpath))
    if found is None:
        return None
    return str(Path(os.path.realpath(Path(found).parent)) / Path(found).name)


def _needs_of(path: str) -> Iterator[str]:
    if path.startswith(_SYSTEM):
        return
    parts = Path(path).parts
    if "node_modules" in parts:
        yield str(Path(*parts[: parts.index("node_modules") + 1]))
        return
    folder = Path(path).parent
    prefix = folder.parent
    if folder.name == "bin" and _is_runtime(prefix):
        yield from _parts_of(prefix)
        if home := _base_of(prefix):
            yield from _parts_of(home)
    else:
        yield path


def _parts_of(prefix: Path) -> Iterator[str]:
    for name in _PARTS:
        part = prefix / name
        if part.exists():
            yield str(part)


def _base_of(prefix: Path) -> Path | None:
    """The installation that an environment of Python's was made from."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home":
            home = Path(os.path.realpath(value.strip()))
            return home.parent if home.name == "bin" and _is_runtime(home.parent) else None
    return None


def _is_runtime(prefix: Path) -> bool:
    if prefix == Path("/") or str(prefix).startswith(_SYSTEM) or str(prefix) == "/usr":
        return False
    return any((prefix / mark).exists() for mark in _MARKS) or any(prefix.glob("lib/python3*/os.py"))
