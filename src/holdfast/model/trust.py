"""How much a session is trusted."""

from enum import StrEnum

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


class Trust(StrEnum):
    """`direct` sessions have the host's rights; `sandboxed` sessions get confined servers only."""

    DIRECT = "direct"
    SANDBOXED = "sandboxed"


_WORDS = {
    "direct": Trust.DIRECT,
    "trusted": Trust.DIRECT,
    "full": Trust.DIRECT,
    "vault": Trust.DIRECT,
    "sandboxed": Trust.SANDBOXED,
    "untrusted": Trust.SANDBOXED,
}


def parse_trust(text: str) -> Trust:
    """Parse a trust level; an unknown word is an error, never `direct`."""
    trust = _WORDS.get(text.strip().lower())
    if trust is None:
        raise HoldfastError(
            codes.BAD_TRUST, f"{text[:80]!r} is not a trust level. Use one of: {', '.join(_WORDS)}."
        )
    return trust


def lowest_trust(first: Trust, *others: Trust) -> Trust:
    """The lowest trust: `sandboxed` if any is."""
    return Trust.SANDBOXED if Trust.SANDBOXED in (first, *others) else Trust.DIRECT
