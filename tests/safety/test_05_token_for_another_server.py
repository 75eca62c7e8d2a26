"""Attack 5: a server sends a token that it received to another server, to act as the caller."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import Signer, Verifier, audience_of
from tests.safety.naive_verifier import verify_naively
from tests.token.tokens import CONTEXT, NOW

BANK, EVIL = "https://bank.example/mcp", "https://evil.example/mcp"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "keys", clock=lambda: NOW)


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    "url",
    [
        EVIL,
        "https://bank.example.evil.example/mcp",
        "https://bank.example@evil.example/mcp",
        "https://bank.example/other",
        "http://bank.example/mcp",
        "https://bank.example:8443/mcp",
        "https://evil.example/?https://bank.example/mcp",
    ],
)
def test_token_for_one_server_is_refused_by_another(signer: Signer, url: str) -> None:
    token = signer.sign(CONTEXT, audience_of(url))

    with pytest.raises(HoldfastError) as caught:
        Verifier(signer.jwks()).verify(token, BANK, now=NOW)

    assert (caught.value.code, caught.value.details) == (codes.BAD_TOKEN, {"reason": "audience"})


def test_server_with_another_ones_name_gets_no_token_for_it(signer: Signer) -> None:
    """Names come from configs; the audience is the address that the token is sent to."""
    config = {"bank": EVIL}
    token = signer.sign(CONTEXT, audience_of(config["bank"]))

    with pytest.raises(HoldfastError, match="for another server"):
        Verifier(signer.jwks()).verify(token, BANK, now=NOW)


def test_control_without_the_check_the_other_server_accepts_it(signer: Signer) -> None:
    token = signer.sign(CONTEXT, audience_of(EVIL))

    accepted: Any = verify_naively(token, dict(signer.jwks()))

    assert accepted["sub"] == CONTEXT.session_id


def test_control_the_right_server_accepts_it(signer: Signer) -> None:
    token = signer.sign(CONTEXT, audience_of(BANK))

    assert Verifier(signer.jwks()).verify(token, BANK, now=NOW).context == CONTEXT
