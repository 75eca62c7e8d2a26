"""A session's context, signed for servers that are reached over HTTP.

`Signer` is the host's side, `Verifier` and `Seen` are the tool author's; nothing heavy is imported before the first
token is signed or verified.
"""

from holdfast.token.audience import audience_of
from holdfast.token.claims import LIFETIME, Claims
from holdfast.token.seen import Seen
from holdfast.token.signer import Signer
from holdfast.token.verifier import Verifier

__all__ = ["LIFETIME", "Claims", "Seen", "Signer", "Verifier", "audience_of"]
