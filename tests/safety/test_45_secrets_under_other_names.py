"""Attack 45: secrets of servers under ordinary names, in several lines or escaped, and the gateway's own tokens."""

import html
import json
import secrets
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.gateway.client_tokens import Tokens
from holdfast.gateway.credential import Credential
from holdfast.masking import MASKED, obtained_secrets
from holdfast.masking.configured_secrets import secrets_by_name, secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.masking.stream_mask import StreamMask
from holdfast.model.ids import new_session_id
from holdfast.model.server import Http, ServerSpec, Source, Stdio

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0"
RANDOM = "x9Kq2LmZ7vT4bN8wR1"
UNDER_OTHER_NAMES = {
    "GH": KEY,
    "SEED": RANDOM,
    "PG_DSN": f"host=db user=me password={RANDOM} dbname=shop",
    "STORAGE": f"Endpoint=https://x.test/;AccountName=me;AccountKey={RANDOM};Suffix=y",
    "OPTIONS": f"--verbose {KEY}",
}
ORDINARY = {
    "PATH": "/usr/local/bin:/usr/bin",
    "MODEL": "claude-sonnet-5-20260101",
    "WHEN": "2026-11-17T19:44:28",
    "IMAGE": "python@sha256:" + "0a1b" * 16,
    "HOLDFAST_SESSION_ID": new_session_id(),
    "TEXT": "shop floor plan, second edition",
}


@pytest.mark.parametrize("name", UNDER_OTHER_NAMES)
def test_generated_values_and_passwords_in_settings_are_masked_under_any_name(name: str):
    value = UNDER_OTHER_NAMES[name]
    secret = KEY if KEY in value else RANDOM
    local = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env={name: value}))
    remote = ServerSpec(
        name="s", source=Source.USER, transport=Http(url="https://x.test", headers={"X-Customer": value})
    )

    for spec in (local, remote):
        assert secret not in Mask.of(secrets_in_spec(spec)).mask_known(f"it is {secret}")
    by_name = Mask.of(secrets_by_name({name: value})).mask_known(f"it is {secret}")
    assert secret in by_name, "control: found by the names alone"


def test_ordinary_values_are_not_masked():
    spec = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env=ORDINARY))

    assert secrets_in_spec(spec) == ()


PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEF",
        "AASCBKcwggSjAgEAAoIBAQDabc",
        "+/Zz9",
        "-----END PRIVATE KEY-----",
    ]
)


@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\r\n")])
def test_lines_of_a_private_key_are_masked_wherever_they_are(value: str):
    lines = PEM.splitlines()
    shown = "\n".join(f"   | {line}" for line in lines)

    masked = Mask.of([value]).mask_known(shown)

    assert [line in masked for line in lines] == [True, False, False, True, True]
    assert Mask((value,)).mask_known(shown) == shown, "control: the whole value only"


@pytest.mark.parametrize("escape", [html.escape, partial(html.escape, quote=False), json.dumps])
def test_escaped_secrets_are_masked(escape: Callable[[str], str]):
    secret = "a&b<c>'d'\"e\"&f"

    assert Mask.of([secret]).mask_known(escape(secret)).strip('"') == MASKED


@pytest.fixture
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    tokens = Tokens(tmp_path_factory.mktemp("tokens"))
    return tokens.create(Credential(id="", name="ann"))[0]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_tokens_of_clients_are_masked_by_their_form(token: str, size: int):
    text = f'"Authorization": "Bearer {token}", "other": "hft_short"'
    stream, shown = StreamMask(Mask()), ""
    for start in range(0, len(text), size):
        shown += stream.feed(text[start : start + size])
    shown += stream.flush()

    expected = text.replace(token, MASKED)
    assert (Mask().mask_known(text), shown) == (expected, expected)
    assert Mask().without_obtained().mask_known(text) == text, "control"
    assert obtained_secrets.contains(f"hft_{secrets.token_hex(30)}") is False
