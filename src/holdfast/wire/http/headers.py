"""The headers of a request: one value each, where two would let two readers disagree."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

Headers: TypeAlias = Mapping[str, str]

_MAY_REPEAT = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "cookie", "via"})


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by lower-case name. Lists are joined; whatever else stands twice is refused."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _MAY_REPEAT or name.startswith("x-forwarded"):
            headers[name] += f", {value}"
        else:
            raise HoldfastError(codes.HEADER_MISMATCH, f"The header {name[:80]!r} stands twice.")
    return headers


def accepts(headers: Headers, kind: str) -> bool:
    """Whether the client takes an answer of this media type; without an `Accept` it takes any."""
    accepted = headers.get("accept")
    return accepted is None or _accepts(accepted, kind)


@lru_cache(256)
def _accepts(accepted: str, kind: str) -> bool:
    wanted = {part.partition(";")[0].strip().lower() for part in accepted.split(",")}
    return not wanted.isdisjoint({kind, f"{kind.partition('/')[0]}/*", "*/*"})
