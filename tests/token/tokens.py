"""Contexts and tokens for tests, with tokens that our own signer would not make."""

import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.token import Verifier

NOW = 1_800_000_000
FILES = "https://files.example/mcp"
MAIL = "https://mail.example/mcp"
BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"euros":5}}}'
CONTEXT = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    workspace_id="my-project",
    trust_level=Trust.SANDBOXED,
    user_id="ann",
    parent_session_id=SessionId("sess_fedcba9876543210"),
)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
HEADER = {"alg": "EdDSA", "kid": "k1", "typ": "holdfast-context+jwt"}
CLAIMS: dict[str, Any] = {
    "iss": "holdfast",
    "aud": FILES,
    "sub": "sess_0123456789abcdef",
    "ws": "my-project",
    "tl": "sandboxed",
    "iat": NOW,
    "exp": NOW + 60,
    "jti": "A" * 22,
}


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def jwks(key: Ed25519PrivateKey = KEY, **more: object) -> dict[str, Any]:
    x = b64(key.public_key().public_bytes_raw())
    return {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x, **more}]}


def forge_token(claims: object = CLAIMS, header: object = HEADER, key: Ed25519PrivateKey = KEY) -> str:
    """A token with any header and claims, and a valid signature."""
    signed = ".".join(
        b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (header, claims)
    )
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def refusal_reason(token: str, verifier: Verifier | None = None, **how: Any) -> object:
    """The reason why a token is refused, or None if it is accepted. Checks that the message does not repeat the token."""
    verifier = verifier or Verifier(jwks())
    try:
        verifier.verify(token, how.pop("audience", FILES), now=how.pop("now", NOW), **how)
    except HoldfastError as error:
        if any(part in str(error) for part in token.split(".") if len(part) > 10):
            raise AssertionError("The message repeats the token.") from error
        return error.details.get("reason", error.code.name)
    return None
