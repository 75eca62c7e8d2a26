"""How much a session is trusted."""

from enum import StrEnum

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


class Trust(StrEnum):
    """`direct` may use what the host may; `sandboxed` gets confined servers only."""

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
    """The trust that a word stands for; a word we do not know is an error, never `direct`."""
    trust = _WORDS.get(text.strip().lower())
    if trust is None:
        raise HoldfastError(
            codes.BAD_TRUST, f"{text[:80]!r} is no trust level. Use one of: {', '.join(_WORDS)}."
        )
    return trust


def lowest(first: Trust, *others: Trust) -> Trust:
    """The least trust of several: one `sandboxed` is enough."""
    return Trust.SANDBOXED if Trust.SANDBOXED in (first, *others) else Trust.DIRECT
