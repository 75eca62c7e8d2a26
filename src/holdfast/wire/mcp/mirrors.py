"""Arguments of a tool that its clients repeat in HTTP headers, for whoever routes by them."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """One of them: the way to the argument, and the last part of the header `Mcp-Param-…`."""

    path: tuple[str, ...]
    header: str
    number: bool = False


Mirrors: TypeAlias = tuple[Mirror, ...]
