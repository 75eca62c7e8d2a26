"""How much a session is trusted."""

from enum import StrEnum

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


class Trust(StrEnum):
    """A `direct` session has the host's rights; in a `sandboxed` session, local servers are confined."""

    DIRECT = "direct"
    SANDBOXED = "sandboxed"


# Other hosts write `trusted`, `full`, `vault` and `untrusted`. These words are accepted, so that their config files can be used.
_TRUST_BY_NAME = {
    "direct": Trust.DIRECT,
    "trusted": Trust.DIRECT,
    "full": Trust.DIRECT,
    "vault": Trust.DIRECT,
    "sandboxed": Trust.SANDBOXED,
    "untrusted": Trust.SANDBOXED,
}


def parse_trust(text: str) -> Trust:
    """Parse a trust level; an unknown word is an error, never `direct`."""
    trust = _TRUST_BY_NAME.get(text.strip().lower())
    if trust is None:
        raise HoldfastError(
            codes.BAD_TRUST, f"{text[:80]!r} is not a trust level. Use one of: {', '.join(Trust)}."
        )
    return trust


def lowest_trust(first: Trust, *others: Trust) -> Trust:
    """The lowest of these levels: `sandboxed` if any of them is."""
    return Trust.SANDBOXED if Trust.SANDBOXED in (first, *others) else Trust.DIRECT
