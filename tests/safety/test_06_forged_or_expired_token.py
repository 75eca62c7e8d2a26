"""Attack 6: a token that is expired, not yet valid, unsigned, or signed with an algorithm that the attacker chose."""

import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import Verifier
from tests.safety.naive_verifier import verify_naively
from tests.token.tokens import CLAIMS, FILES, HEADER, NOW, OTHER_KEY, b64, forge_token, jwks

PUBLIC = jwks()
DIRECT = {**CLAIMS, "tl": "direct"}
"""The claims that the attacker wants accepted."""


def _unsigned(alg: str = "none", signature: str = "") -> str:
    parts = (json.dumps(part).encode() for part in ({**HEADER, "alg": alg}, DIRECT))
    return f"{'.'.join(map(b64, parts))}.{signature}"


def _confused() -> str:
    """Signed with HMAC; the secret is the public key, which the attacker has."""
    signed = _unsigned("HS256").rstrip(".")
    secret = Verifier(PUBLIC)._keys["k1"].public
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


BELIEVED_BY_A_NAIVE_ONE = {
    "alg=none": (_unsigned(), "algorithm"),
    "HS256 with the public key": (_confused(), "algorithm"),
    "expired an hour ago": (forge_token({**DIRECT, "iat": NOW - 3660, "exp": NOW - 3600}), "expired"),
    "not yet valid": (forge_token({**DIRECT, "iat": NOW + 3600, "exp": NOW + 3660}), "future"),
    "valid for a year": (forge_token({**DIRECT, "exp": NOW + 365 * 86400}), "lifetime"),
}
BELIEVED_BY_NOBODY = {
    "alg=None": (_unsigned("None"), "algorithm"),
    "alg=none, old signature": (_unsigned("none", forge_token().rpartition(".")[2]), "algorithm"),
    "no signature": (_unsigned("EdDSA"), "signature"),
    "claims changed": (_unsigned("EdDSA", forge_token().rpartition(".")[2]), "signature"),
    "the attacker's key": (forge_token(DIRECT, key=OTHER_KEY), "signature"),
    "the attacker's key in the header": (
        forge_token(DIRECT, HEADER | {"jwk": jwks(OTHER_KEY)["keys"][0]}, OTHER_KEY),
        "malformed",
    ),
    "a key id that is a path": (
        forge_token(DIRECT, HEADER | {"kid": "../../dev/null"}, OTHER_KEY),
        "unknown_key",
    ),
    "a key id that is SQL": (forge_token(DIRECT, HEADER | {"kid": "' OR 1=1 --"}, OTHER_KEY), "unknown_key"),
}
ATTACKS = BELIEVED_BY_A_NAIVE_ONE | BELIEVED_BY_NOBODY


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize("attack", ATTACKS)
def test_bad_token_is_refused(attack: str) -> None:
    token, reason = ATTACKS[attack]

    with pytest.raises(HoldfastError) as caught:
        Verifier(PUBLIC).verify(token, FILES, now=NOW)

    assert (caught.value.code, caught.value.details) == (codes.BAD_TOKEN, {"reason": reason})


@pytest.mark.parametrize("attack", BELIEVED_BY_A_NAIVE_ONE)
def test_control_naive_verifier_accepts_it(attack: str) -> None:
    token, _ = ATTACKS[attack]

    accepted: Any = verify_naively(token, PUBLIC)

    assert accepted["tl"] == "direct"


def test_control_library_that_allows_every_algorithm_accepts_the_confused_one() -> None:
    secret = Verifier(PUBLIC)._keys["k1"].public

    accepted = jwt.decode(
        _confused(),
        secret,
        algorithms=["EdDSA", "HS256"],
        options={"verify_exp": False, "verify_aud": False, "verify_iat": False},
    )

    assert accepted["tl"] == "direct"


def test_control_honest_token_is_accepted() -> None:
    assert Verifier(PUBLIC).verify(forge_token(), FILES, now=NOW).audience == FILES
