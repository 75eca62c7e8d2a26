"""Give the tools and prompts of several servers unique names, and look up which server a name belongs to."""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.gateway.paging import ITEMS_PER_STEP
from holdfast.wire.loop_throttle import run_steps

MAX_LENGTH = 48
"""How long a qualified name may be. Clients put their own prefix before it, and models accept 64 characters."""
_SUFFIX_LENGTH = 8
_CUT_LENGTH = MAX_LENGTH - _SUFFIX_LENGTH - 1
_HAS_SUFFIX = re.compile(rf"_[0-9a-f]{{{_SUFFIX_LENGTH}}}\Z")
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ServerItem:
    """A server, and the name of one of its tools or prompts."""

    server: str
    name: str


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names that clients see, in the order of the servers, and the server's item for each."""

    by_name: Mapping[str, ServerItem] = field(default_factory=dict[str, ServerItem])
    """The item of each name that clients see."""
    names: Mapping[ServerItem, str] = field(default_factory=dict[ServerItem, str])
    """The name that clients see for each item."""


def build_names(
    items: Iterable[ServerItem], *, is_bare: Callable[[str], bool], reserved: frozenset[str] = frozenset()
) -> NameTable:
    """Name the tools, or the prompts, of several servers.

    If `is_bare(server)`, names are kept, unless they are repeated or reserved. Otherwise they become `server__name`, in the
    characters and the length that clients accept. A name that is repeated or reserved gets a suffix: a hash of the server and
    the name. A name of the form `server__name` also gets a suffix if it is too long, or if it ends with what looks like a suffix:
    otherwise a server could imitate the name of another server's tool.
    """
    return run_steps(name_steps(items, is_bare=is_bare, reserved=reserved))


def name_steps(
    items: Iterable[ServerItem], *, is_bare: Callable[[str], bool], reserved: frozenset[str] = frozenset()
) -> Generator[None, None, NameTable]:
    """Do what `build_names` does. Each `yield` ends a step of the work."""
    wanted: list[tuple[ServerItem, str]] = []
    counts: dict[str, int] = {}
    for number, item in enumerate(items):
        name = item.name if is_bare(item.server) else _qualify(item)
        wanted.append((item, name))
        counts[name] = counts.get(name, 0) + 1
        if number % ITEMS_PER_STEP == 0:
            yield
    by_name: dict[str, ServerItem] = {}
    names: dict[ServerItem, str] = {}
    for number, (item, name) in enumerate(wanted):
        if number % ITEMS_PER_STEP == 0:
            yield
        is_unique = counts[name] == 1 and name not in reserved
        if not is_unique or (
            not is_bare(item.server) and (len(name) > MAX_LENGTH or _HAS_SUFFIX.search(name))
        ):
            name = f"{name[:_CUT_LENGTH]}_{_suffix(item)}"  # noqa: PLW2901 - the same name, made unique
        if name not in by_name:
            by_name[name], names[item] = item, name
    return NameTable(by_name, names)


def _qualify(item: ServerItem) -> str:
    return _INVALID.sub("_", f"{item.server}__{item.name}")


def _suffix(item: ServerItem) -> str:
    return hashlib.sha256(f"{item.server}\0{item.name}".encode()).hexdigest()[:_SUFFIX_LENGTH]
