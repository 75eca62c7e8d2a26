import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.token import Claims, Signer, Verifier
from tests.token.tokens import (
    BODY,
    CLAIMS,
    CONTEXT,
    FILES,
    HEADER,
    KEY,
    MAIL,
    NOW,
    OTHER_KEY,
    b64,
    forge_token,
    jwks,
    refusal_reason,
)


@pytest.mark.promise("CTX-08")
def test_verify_returns_the_claims_of_a_valid_token() -> None:
    claims = Verifier(jwks()).verify(forge_token(), FILES, now=NOW)

    assert claims == Claims(
        context=SessionContext(
            session_id=SessionId("sess_0123456789abcdef"),
            workspace_id="my-project",
            trust_level=Trust.SANDBOXED,
        ),
        issuer="holdfast",
        audience=FILES,
        issued_at=NOW,
        expires_at=NOW + 60,
        token_id="A" * 22,
    )


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOW - 5.5, "future"),
        (NOW - 5, None),
        (NOW + 64.9, None),
        (NOW + 65, "expired"),
        (NOW + 10**9, "expired"),
    ],
)
def test_token_is_valid_for_its_lifetime_with_five_seconds_of_leeway(now: float, reason: str | None) -> None:
    assert refusal_reason(forge_token(), now=now) == reason


def test_leeway_is_limited() -> None:
    strict = Verifier(jwks(), leeway=0)

    assert refusal_reason(forge_token(), strict, now=NOW - 1) == "future"
    assert refusal_reason(forge_token(), strict, now=NOW + 60) == "expired"
    with pytest.raises(ValueError, match="leeway must be 0 to 30 seconds, not 31"):
        Verifier(jwks(), leeway=31)


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"aud": MAIL}, "audience"),
        ({"aud": FILES + "/"}, "audience"),
        ({"aud": [FILES]}, "claims"),
        ({"iss": "someone"}, "issuer"),
        ({"exp": NOW + 61}, "lifetime"),
        ({"exp": NOW}, "lifetime"),
        ({"exp": NOW - 100}, "lifetime"),
        ({"iat": -(10**30), "exp": 10**30}, "lifetime"),
        ({"exp": NOW + 60.0}, "claims"),
        ({"exp": str(NOW + 60)}, "claims"),
        ({"iat": True}, "claims"),
        ({"iat": None}, "claims"),
        ({"nbf": NOW}, "claims"),
        ({"sub": "ann"}, "claims"),
        ({"sub": 7}, "claims"),
        ({"ws": None}, "claims"),
        ({"ws": "../other"}, "claims"),
        ({"tl": "full"}, "claims"),
        ({"tl": "DIRECT"}, "claims"),
        ({"tl": ""}, "claims"),
        ({"uid": 0}, "claims"),
        ({"par": "none"}, "claims"),
        ({"jti": ""}, "claims"),
        ({"jti": "short"}, "claims"),
        ({"jti": "x" * 129}, "claims"),
        ({"req": 1}, "claims"),
    ],
    ids=str,
)
def test_signed_token_with_an_invalid_claim_is_refused(changed: dict[str, Any], reason: str) -> None:
    assert refusal_reason(forge_token({**CLAIMS, **changed})) == reason


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize("name", CLAIMS)
def test_token_without_a_required_claim_is_refused(name: str) -> None:
    assert (
        refusal_reason(forge_token({key: value for key, value in CLAIMS.items() if key != name})) == "claims"
    )


def test_unknown_claim_is_ignored() -> None:
    assert refusal_reason(forge_token({**CLAIMS, "cwd": "/etc", "new": 1})) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "no token at all",
        "é.é.é",
        "\0",
        forge_token([]),
        forge_token(b"{"),
        forge_token(b'{"iss":"a","iss":"b"}'),
        forge_token(b"\xff"),
        forge_token(header=[]),
        forge_token(header=b"{"),
        forge_token(header=b"[" * 5000),
        forge_token(header=b'{"alg":"EdDSA","alg":"none","kid":"k1","typ":"holdfast-context+jwt"}'),
        forge_token(header=HEADER | {"typ": "JWT"}),
        forge_token(header=HEADER | {"kid": 1}),
        forge_token(header={name: value for name, value in HEADER.items() if name != "kid"}),
        forge_token(header=HEADER | {"crit": ["exp"]}),
        forge_token(header=HEADER | {"jwk": jwks()["keys"][0]}),
        forge_token(header=HEADER | {"jku": "https://evil.example/jwks"}),
        forge_token() + "=",
        forge_token() + "\n",
        " " + forge_token(),
        "Bearer " + forge_token(),
    ],
)
def test_text_that_is_not_a_context_token_is_malformed(token: str) -> None:
    assert refusal_reason(token) == "malformed"


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    "alg", ["none", "None", "HS256", "ES256", "RS256", "EdDSA ", "eddsa", "Ed25519", "", None, ["EdDSA"]]
)
def test_any_other_algorithm_is_refused(alg: object) -> None:
    assert refusal_reason(forge_token(header=HEADER | {"alg": alg})) == "algorithm"


def test_long_token_is_refused_before_it_is_parsed() -> None:
    assert refusal_reason("x" * 8193) == "too_long"
    assert refusal_reason(forge_token({**CLAIMS, "pad": "x" * 8000})) == "too_long"


def test_key_that_is_not_in_the_set_is_refused_as_unknown() -> None:
    assert refusal_reason(forge_token(header=HEADER | {"kid": "k2"})) == "unknown_key"


def test_signature_by_another_key_with_the_same_id_is_refused() -> None:
    assert refusal_reason(forge_token(key=OTHER_KEY)) == "signature"


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"\0" * 63, b"\xff" * 64, b"\0" * 114])
def test_bad_signature_of_any_length_is_refused(signature: bytes) -> None:
    signed = forge_token().rpartition(".")[0]

    assert refusal_reason(f"{signed}.{b64(signature)}") in ("signature", "malformed")


def test_signature_with_the_group_order_added_is_refused() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    signed = forge_token().rpartition(".")[0]
    signature = KEY.sign(signed.encode())
    again = signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")

    assert refusal_reason(f"{signed}.{b64(again)}") == "signature"


@pytest.mark.promise("CTX-08")
@settings(deadline=None)
@given(st.data())
def test_token_with_one_changed_byte_is_refused(data: st.DataObject) -> None:
    token = forge_token().encode()
    position = data.draw(st.integers(0, len(token) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != token[position]))

    changed = token[:position] + bytes([byte]) + token[position + 1 :]

    assert refusal_reason(changed.decode("latin-1")) is not None


@pytest.mark.promise("CTX-08")
def test_other_encodings_of_the_same_signature_are_refused() -> None:
    token = forge_token()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    assert [letter for letter in letters if refusal_reason(token[:-1] + letter) is None] == [token[-1]]


@settings(deadline=None)
@given(st.text(), st.data())
def test_token_with_one_character_more_or_less_is_refused(text: str, data: st.DataObject) -> None:
    token = forge_token()
    position = data.draw(st.integers(0, len(token) - 1))

    assert refusal_reason(token[:position] + token[position + 1 :]) is not None
    assert not text or refusal_reason(token[:position] + text + token[position:]) is not None


@settings(deadline=None)
@given(st.text(), st.binary())
def test_no_text_crashes_the_verifier(text: str, data: bytes) -> None:
    assert refusal_reason(text) is not None
    assert refusal_reason(f"{b64(data)}.{b64(data)}.{b64(data)}") is not None


@pytest.mark.promise("CTX-08")
def test_token_for_a_request_is_valid_only_with_that_body(tmp_path: Path) -> None:
    signer = Signer(tmp_path / "keys", clock=lambda: NOW)
    verifier = Verifier(signer.jwks())
    bound, loose = signer.sign(CONTEXT, FILES, BODY), signer.sign(CONTEXT, FILES)

    assert refusal_reason(bound, verifier, request=BODY) is None
    assert refusal_reason(bound, verifier, request=BODY.replace(b"5", b"5000")) == "request"
    assert refusal_reason(bound, verifier, request=b"") == "request"
    assert refusal_reason(loose, verifier, request=BODY) == "request"
    assert refusal_reason(bound, verifier) is None


def test_server_with_several_addresses_accepts_tokens_for_each() -> None:
    assert refusal_reason(forge_token(), audience={FILES, MAIL}) is None
    assert refusal_reason(forge_token(), audience={MAIL}) == "audience"
    assert refusal_reason(forge_token(), audience=set[str]()) == "audience"
    assert refusal_reason(forge_token(), audience=FILES + " and " + MAIL) == "audience"


def test_key_set_can_be_a_dict_text_bytes_or_a_file(tmp_path: Path) -> None:
    text = json.dumps(jwks())
    file = tmp_path / "jwks.json"
    file.write_text(text)

    assert [
        refusal_reason(forge_token(), Verifier(form)) for form in (jwks(), text, text.encode(), file)
    ] == [None] * 4


def test_changed_key_file_is_read_again_and_a_replaced_set_drops_the_old_keys(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(jwks()))
    watching, fixed = Verifier(file), Verifier(jwks())
    other = jwks(OTHER_KEY)

    file.write_text(json.dumps(other | {"more": 1}))
    fixed.replace(other)

    assert (refusal_reason(forge_token(), watching), refusal_reason(forge_token(), fixed)) == (
        "signature",
        "signature",
    )


def test_keys_of_other_types_in_the_set_are_skipped() -> None:
    ours = jwks()["keys"][0]
    others = [
        {"kty": "RSA", "kid": "k1", "n": "AQAB", "e": "AQAB"},
        {"kty": "oct", "kid": "k1", "k": ours["x"]},
        {"kty": "EC", "crv": "P-256", "kid": "k1", "x": ours["x"], "y": ours["x"]},
        {"kty": "OKP", "crv": "Ed448", "kid": "k1", "x": b64(bytes(57))},
        {"kty": "OKP", "crv": "X25519", "kid": "k1", "x": ours["x"]},
        {**ours, "use": "enc"},
        {**ours, "alg": "HS256"},
    ]

    assert refusal_reason(forge_token(), Verifier({"keys": [*others, ours]})) is None
    for other in others:
        with pytest.raises(HoldfastError, match="It has no Ed25519 key"):
            Verifier({"keys": [other]})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (b"", "It is not a valid JSON Web Key Set"),
        ("[]", "It is not a valid JSON Web Key Set"),
        ({}, "It is not a valid JSON Web Key Set"),
        ({"keys": {}}, 'It is not a valid JSON Web Key Set: "keys" is not a list'),
        ({"keys": []}, "It has no Ed25519 key"),
        (jwks(x="AAAA"), "a key does not have 32 bytes"),
        (jwks(x=None), "a key has no id or no public part"),
        (jwks(kid=None), "a key has no id or no public part"),
        (jwks(exp="soon"), "the secret or expiry of a key has the wrong type"),
        ({"keys": jwks()["keys"] * 2}, "Two of its keys have the same id"),
        (jwks(d=b64(bytes(32))), "It contains a secret key"),
    ],
)
def test_bad_key_set_raises(keys: Any, message: str) -> None:
    with pytest.raises(HoldfastError, match=message) as caught:
        Verifier(keys)

    assert caught.value.code == codes.BAD_KEY


def test_error_for_a_missing_key_set_contains_its_path(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"jwks\.json' cannot be read: No such file"):
        Verifier(tmp_path / "jwks.json")


def test_expired_key_verifies_nothing() -> None:
    assert refusal_reason(forge_token(), Verifier(jwks(exp=NOW + 1))) is None
    assert refusal_reason(forge_token(), Verifier(jwks(exp=NOW))) == "unknown_key"


@pytest.mark.promise("CTX-08")
def test_cryptography_is_not_imported_before_the_first_token() -> None:
    code = (
        "import sys, json, pathlib; from holdfast.token import ReplayCache, Signer, Verifier\n"
        "Verifier(sys.argv[1]); ReplayCache(); Signer(pathlib.Path('nowhere'))\n"
        "print(*(name for name in ('cryptography', 'jwt', 'msgspec', 'asyncio') if name in sys.modules))"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code, json.dumps(jwks())], capture_output=True, text=True, check=True
    )

    assert loaded.stdout == "\n"
