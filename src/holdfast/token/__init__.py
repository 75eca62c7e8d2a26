"""The session context as a signed token, for servers that are reached over HTTP; and the access tokens of OAuth issuers.

The host uses `Signer`; a server uses `Verifier` and `ReplayCache`. `issuer_verifier` verifies an issuer's access tokens.
"""

from holdfast.token.claims import MAX_LIFETIME, Claims, audience_of
from holdfast.token.replay_cache import ReplayCache
from holdfast.token.signer import Signer
from holdfast.token.verifier import Verifier

__all__ = ["MAX_LIFETIME", "Claims", "ReplayCache", "Signer", "Verifier", "audience_of"]
