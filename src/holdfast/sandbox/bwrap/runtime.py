"""Find the files that a server's program needs to run: itself, and its Python or Node installation."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec

_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/", "/gnu/store/")
_RUNTIME_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
_RUNTIME_MARKERS = ("pyvenv.cfg", "lib/node_modules", "include/node")
_MAX_LINKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRuntime:
    """A program, and the paths outside the system folders that it needs to run."""

    program: str
    """Its path, with links in its folder resolved. A link at the end is kept."""
    paths: tuple[str, ...]


def find_runtime(spec: ProcessSpec) -> ProgramRuntime:
    """Find the program by the server's PATH and working directory, and the paths that it needs.

    A folder is only included if it is recognised as a runtime (a Python environment, a Node installation, a
    `node_modules`); otherwise only the program's file is.
    """
    program = _locate(spec)
    paths = dict.fromkeys(needed for path in _follow_links(program, spec) for needed in _needed_paths(path))
    return ProgramRuntime(program=program, paths=tuple(paths))


def runtime_paths(program: str) -> tuple[str, ...]:
    """The paths that a program needs, given its absolute path."""
    spec = ProcessSpec(argv=(program,), env={}, cwd="/")
    return find_runtime(spec).paths


def _locate(spec: ProcessSpec) -> str:
    name = spec.argv[0] if spec.argv else ""
    found = shutil.which(
        os.path.join(spec.cwd, name) if "/" in name else name,  # noqa: PTH118 - a name, not a path yet
        path=spec.env.get("PATH", os.defpath),
    )
    if found is None or "\0" in name:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"Could not start {name!r}: there is no such program. Install it, or correct the server's command.",
            command=name,
        )
    path = Path(os.path.abspath(found))  # noqa: PTH100 - keep the last link: a Python finds its environment by it
    return str(Path(os.path.realpath(path.parent)) / path.name)


def _follow_links(program: str, spec: ProcessSpec) -> Iterator[str]:
    """The program, then each target of a link and each interpreter of a script, until neither follows."""
    path = program
    for _ in range(_MAX_LINKS):
        yield path
        link = Path(path)
        if link.is_symlink():
            target = link.parent / link.readlink()
            path = str(Path(os.path.realpath(target.parent)) / target.name)
        elif interpreter := _interpreter(path, spec):
            path = interpreter
        else:
            return


def _interpreter(path: str, spec: ProcessSpec) -> str | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a str, not a Path
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
    found = shutil.which(words[0], path=spec.env.get("PATH", os.defpath))
    if found is None:
        return None
    return str(Path(os.path.realpath(Path(found).parent)) / Path(found).name)


def _needed_paths(path: str) -> Iterator[str]:
    if path.startswith(_SYSTEM):
        return
    parts = Path(path).parts
    if "node_modules" in parts:
        yield str(Path(*parts[: parts.index("node_modules") + 1]))
        return
    folder = Path(path).parent
    prefix = folder.parent
    if folder.name == "bin" and _is_runtime(prefix):
        yield from _existing_parts(prefix)
        if home := _base_installation(prefix):
            yield from _existing_parts(home)
    else:
        yield path


def _existing_parts(prefix: Path) -> Iterator[str]:
    for name in _RUNTIME_PARTS:
        part = prefix / name
        if part.exists():
            yield str(part)


def _base_installation(prefix: Path) -> Path | None:
    """The installation that a Python environment is based on."""
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
    return any((prefix / marker).exists() for marker in _RUNTIME_MARKERS) or any(
        prefix.glob("lib/python3*/os.py")
    )
