"""Tokens of an OAuth issuer. PyJWT, another implementation, signs them."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token.fetch_issuer_keys import check_url
from holdfast.token.issuer_keys import read_key_set
from holdfast.token.issuer_verifier import IssuerVerifier

pytestmark = pytest.mark.anyio

ISSUER, AUDIENCE, NOW = "https://login.example", "https://mcp.example/mcp", 1_800_000_000.0
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "ann",
    "exp": NOW + 60,
    "client_id": "cursor",
}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str, algorithm: str) -> dict[str, Any]:
    handler = jwt.get_algorithm_by_name(algorithm)
    return {**json.loads(handler.to_jwk(key.public_key())), "kid": kid, "use": "sig"}


KEY_SET = {
    "keys": [jwk(RSA, "rsa", "RS256"), jwk(EC, "ec", "ES256"), jwk(ED, "ed", "EdDSA"), {"kty": "odd"}, 7]
}


class Issuer:
    def __init__(self) -> None:
        self.fetched = 0
        self.now = NOW
        self.key_set = json.dumps(KEY_SET).encode()
        self.is_down = False

    async def fetch(self) -> bytes:
        self.fetched += 1
        if self.is_down:
            raise HoldfastError(codes.BAD_KEY, "The issuer does not answer.")
        return self.key_set

    def verifier(self) -> IssuerVerifier:
        return IssuerVerifier(
            ISSUER, AUDIENCE, self.fetch, clock=lambda: self.now, age_clock=lambda: self.now
        )


def sign(key: Any, kid: str, algorithm: str, headers: dict[str, Any] | None = None, **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid, **(headers or {})})


async def verify(token: str) -> None:
    verifier = Issuer().verifier()
    await verifier.prepare(token)
    verifier.verify(token)


async def refusal(token: str) -> Any:
    with pytest.raises(HoldfastError) as refused:
        await verify(token)
    return refused.value.details["reason"]


@pytest.mark.parametrize(
    ("key", "kid", "algorithm"),
    [(RSA, "rsa", "RS256"), (RSA, "rsa", "PS384"), (EC, "ec", "ES256"), (ED, "ed", "EdDSA")],
)
async def test_a_token_signed_with_a_published_key_is_accepted(key: Any, kid: str, algorithm: str):
    verifier = Issuer().verifier()
    token = sign(key, kid, algorithm, aud=["https://other.example", AUDIENCE], scope="mcp read")

    await verifier.prepare(token)
    claims = verifier.verify(token)

    assert (claims.subject, claims.client_id, claims.scopes) == ("ann", "cursor", {"mcp", "read"})


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("audience", {"aud": "https://other.example"}),
        ("audience", {"aud": None}),
        ("issuer", {"iss": "https://evil.example"}),
        ("expired", {"exp": NOW - 60}),
        ("claims", {"exp": None}),
        ("claims", {"exp": "soon"}),
        ("claims", {"sub": None}),
        ("claims", {"sub": "\ud800"}),
        ("future", {"nbf": NOW + 3600}),
        ("future", {"iat": NOW + 3600}),
    ],
)
async def test_a_token_with_other_claims_is_refused(reason: str, changes: dict[str, Any]):
    assert await refusal(sign(RSA, "rsa", "RS256", **changes)) == reason


async def test_a_token_signed_with_another_key_is_refused():
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    assert await refusal(sign(other, "rsa", "RS256")) == "signature"
    assert await refusal(sign(other, "another", "RS256")) == "unknown_key"


def test_a_key_refuses_an_algorithm_that_it_may_not_be_used_with():
    limited = {**jwk(RSA, "rsa", "RS256"), "alg": "RS256"}
    key = read_key_set(json.dumps({"keys": [limited]}).encode())["rsa"]
    signed = b"text"
    signatures = {name: jwt.get_algorithm_by_name(name).sign(signed, RSA) for name in ("RS256", "PS256")}

    key.verify("RS256", signed, signatures["RS256"])
    key.verify_signature("PS256", signed, signatures["PS256"])  # the signature itself is right
    with pytest.raises(ValueError, match="may not be used with this algorithm"):
        key.verify("PS256", signed, signatures["PS256"])


async def test_algorithms_that_do_not_belong_to_the_key_are_refused():
    unsigned = jwt.encode(CLAIMS, "", "none", headers={"kid": "rsa"})
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = sign(RSA, "rsa", "RS256").split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa","typ":"JWT"}').rstrip(b"=").decode()
    mac = hmac.digest(public, f"{head}.{body}".encode(), hashlib.sha256)
    confused = f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    assert await refusal(unsigned) == "algorithm"
    assert await refusal(confused) == "algorithm"
    assert await refusal(sign(EC, "rsa", "ES256")) == "algorithm"
    assert await refusal(sign(RSA, "rsa", "RS256", {"crit": ["exp"]})) == "malformed"


async def test_a_changed_token_is_refused():
    head, _, signature = sign(RSA, "rsa", "RS256").split(".")
    body = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "sub": "root"}).encode()).rstrip(b"=").decode()

    assert await refusal(f"{head}.{body}.{signature}") == "signature"
    assert await refusal("a.b") == "malformed"
    assert await refusal("a" * 10_000) == "too_long"


async def test_keys_are_fetched_once_in_30_seconds_however_many_tokens_have_unknown_keys():
    issuer = Issuer()
    verifier = issuer.verifier()

    for number in range(100):
        await verifier.prepare(sign(ED, f"unknown-{number}", "EdDSA"))
    assert issuer.fetched == 1
    issuer.now += 31
    await verifier.prepare(sign(ED, "unknown", "EdDSA"))

    assert issuer.fetched == 2


async def test_token_is_refused_with_bad_key_while_no_keys_can_be_fetched():
    issuer = Issuer()
    verifier, token = issuer.verifier(), sign(ED, "ed", "EdDSA")

    issuer.is_down = True
    codes_while_down: list[str] = []
    for _ in range(3):
        with pytest.raises(HoldfastError) as refused:
            await verifier.prepare(token)
        codes_while_down.append(refused.value.code.name)
    fetched_while_down = issuer.fetched
    issuer.is_down, issuer.now = False, issuer.now + 31
    await verifier.prepare(token)

    assert (codes_while_down, fetched_while_down) == (["BAD_KEY"] * 3, 1)
    assert verifier.verify(token).subject == "ann"


async def test_old_keys_are_used_for_an_hour_while_the_issuer_is_down():
    issuer = Issuer()
    verifier, token = issuer.verifier(), sign(ED, "ed", "EdDSA", exp=NOW + 9000)
    await verifier.prepare(token)

    issuer.is_down, issuer.now = True, issuer.now + 3601
    await verifier.prepare(token)
    assert verifier.verify(token).subject == "ann"
    issuer.now += 3600

    with pytest.raises(HoldfastError, match="The issuer does not answer"):
        await verifier.prepare(token)


@pytest.mark.parametrize("url", ["https://[", "http://login.example", "https://", "ftp://localhost"])
def test_a_url_over_which_keys_could_be_replaced_is_refused(url: str):
    with pytest.raises(HoldfastError, match="must begin with https://"):
        check_url(url)


async def test_a_key_that_the_issuer_removed_is_no_longer_accepted():
    issuer = Issuer()
    verifier = issuer.verifier()
    token = sign(RSA, "rsa", "RS256", exp=NOW + 9000)
    await verifier.prepare(token)
    verifier.verify(token)

    issuer.key_set = json.dumps({"keys": [jwk(EC, "ec", "ES256")]}).encode()
    issuer.now += 3601
    await verifier.prepare(token)

    with pytest.raises(HoldfastError) as refused:
        verifier.verify(token)
    assert refused.value.details["reason"] == "unknown_key"
