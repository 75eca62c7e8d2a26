"""Read commands that fetch a package and run it: `npx`, `uvx`, `bunx`, `pipx run`. Nothing is run here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

# A package by name, with an optional version. Paths, URLs and git repositories are left to the runner itself.
_PACKAGE = re.compile(
    r"@?[A-Za-z0-9][A-Za-z0-9._/-]*(?:\[[\w,-]+\])?(?:(?:@|==|>=|<=|~=|\^)[A-Za-z0-9.^~*+<>=_-]+)?"
)
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"(?<=.)(?:@|==|>=|<=|~=|\[).*")


class Runner(StrEnum):
    """A program that fetches packages and runs them."""

    NPX = "npx"
    BUNX = "bunx"
    UVX = "uvx"
    PIPX = "pipx"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCommand:
    """A command that runs a program of a package."""

    runner: Runner
    packages: tuple[str, ...]
    """The packages to install, the one with the program first."""
    program: str
    """The program's name; empty if it is the package's own, as its manifest says."""
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the first package, without its version."""
        return _VERSION.sub("", self.packages[0])

    def pinned(self, version: str) -> "PackageCommand":
        """The same command with this version of the first package."""
        separator = "@" if self.runner in (Runner.NPX, Runner.BUNX) else "=="
        packages = (f"{self.name}{separator}{version}", *self.packages[1:])
        return PackageCommand(runner=self.runner, packages=packages, program=self.program, args=self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Syntax:
    """The options of a runner that are understood. With any other option, the command is left to the runner."""

    flags: frozenset[str] = frozenset()
    package: frozenset[str] = frozenset()
    """Options whose value is the package with the program."""
    extra: frozenset[str] = frozenset()
    """Options whose value is a further package."""


_NODE = _Syntax(
    flags=frozenset({"-y", "--yes", "-q", "--quiet", "--bun"}), package=frozenset({"-p", "--package"})
)
_PYTHON = _Syntax(
    flags=frozenset({"-q", "--quiet", "--no-cache", "--isolated"}),
    package=frozenset({"--from", "--spec"}),
    extra=frozenset({"--with"}),
)
_SYNTAX: Mapping[Runner, _Syntax] = {
    Runner.NPX: _NODE,
    Runner.BUNX: _NODE,
    Runner.UVX: _PYTHON,
    Runner.PIPX: _PYTHON,
}


def parse_package_command(argv: Sequence[str]) -> PackageCommand | None:
    """The package that a command fetches and runs; None for other commands, and for options that are not understood."""
    runner, words = _runner(argv)
    if runner is None:
        return None
    syntax = _SYNTAX[runner]
    named: list[str] = []
    extra: list[str] = []
    rest = [*words]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, value = rest.pop(0).partition("=")
        if option in syntax.flags and not equals:
            continue
        if option not in syntax.package | syntax.extra or not (equals or rest):
            return None
        (named if option in syntax.package else extra).append(value if equals else rest.pop(0))
    if rest[:1] == ["--"]:
        rest.pop(0)
    if not rest:
        return None
    first, *args = rest
    return _build(runner, named, extra, first, tuple(args))


def _build(
    runner: Runner, named: list[str], extra: list[str], first: str, args: tuple[str, ...]
) -> PackageCommand | None:
    is_python = runner in (Runner.UVX, Runner.PIPX)
    if named:
        packages, program = (*named, *extra), first
    else:
        spec = re.sub(r"(?<=.)@(?:latest)?", "==", first).removesuffix("==") if is_python else first
        packages, program = (spec, *extra), _VERSION.sub("", first) if is_python else ""
    is_valid = all(_PACKAGE.fullmatch(package) and ".." not in package for package in packages)
    if not is_valid or (program and not _PROGRAM.fullmatch(program)):
        return None
    return PackageCommand(runner=runner, packages=packages, program=program, args=args)


def _runner(argv: Sequence[str]) -> tuple[Runner | None, Sequence[str]]:
    name = PurePosixPath(argv[0]).name if argv else ""
    match [name, *argv[1:3]]:
        case ["npx" | "bunx" | "uvx", *_]:
            return Runner(name), argv[1:]
        case ["uv", "tool", "run"]:
            return Runner.UVX, argv[3:]
        case ["pipx", "run", *_]:
            return Runner.PIPX, argv[2:]
        case ["npm", "exec", *_]:
            return Runner.NPX, argv[2:]
        case _:
            return None, ()
