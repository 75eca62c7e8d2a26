"""Attack 45: secrets of servers under ordinary names, in several lines or escaped, and the gateway's own tokens."""

import html
import json
import re
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.gateway.client_tokens import Tokens
from holdfast.gateway.credential import Credential
from holdfast.masking import MASKED, obtained_secrets
from holdfast.masking.configured_secrets import (
    mask_command,
    secrets_by_name,
    secrets_in_arguments,
    secrets_in_spec,
)
from holdfast.masking.known_secrets import MIN_SECRET_LENGTH
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


WORD = "hunter2horse"  # no form tells that it is a secret
IN_VALUES = {
    "DATABASE": f"me:{WORD}@tcp(db:3306)/shop",
    "MAIN": f"me:{WORD}@db.internal:5432/shop",
    "JDBC_URL": f"jdbc:oracle:thin:me/{WORD}@db:1521/x",
    "DB_CONN": f"me/{WORD}@db",
    "PG": f"host=db password = '{WORD}' dbname=shop",
    "ODBC": f"UID=me;PWD={{{WORD}}}",
    "JAAS": f'org.x.PlainLoginModule required username="me" password="{WORD}";',
    "CONFIG": json.dumps({"db": {"password": WORD}}),
    "YAML": f"user: me\npassword: {WORD}\n",
    "NETRC": f"machine db login me password {WORD}",
    "BASIC_AUTH": f"me:{WORD}",
    "OPTIONS": f"--verbose --password {WORD}",
    "MYSQL": f"-u me -p{WORD}",
    "SENTRY_DSN": f"https://{WORD}@sentry.test/1",
}


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("name", IN_VALUES)
def test_passwords_of_words_in_values_are_masked(name: str):
    value = IN_VALUES[name]
    local = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env={name: value}))
    text = f"access denied for {WORD}"

    assert WORD not in Mask.of(secrets_in_spec(local)).mask_known(text)
    assert Mask.of([value]).mask_known(text) == text, "control: the whole value only"


def _promised_names() -> list[str]:
    """Names for each pattern that AUD-04 promises, such as `*pass*`."""
    promises = Path(__file__).parents[2].joinpath("docs", "promises.md").read_text()
    (row,) = (line for line in promises.splitlines() if line.startswith("| AUD-04 |"))
    words = [pattern.strip("*") for pattern in re.findall(r"`(\*\w+\*?)`", row)]
    assert {"pass", "key", "token"} <= {*words}
    shapes = ("{}", "MY_{}", "MY{}", "{}_2", "my-{}", "My{}")
    return [
        shape.format(word.title() if shape == "My{}" else word.upper()) for word in words for shape in shapes
    ]


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    "name", [*_promised_names(), "DB_PW", "SSH_PIN", "SALT", "WALLET_SEED", "MNEMONIC", "UNLOCK_PHRASE"]
)
def test_values_under_promised_names_are_masked(name: str):
    local = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env={name: WORD}))
    option = ServerSpec(
        name="s", source=Source.USER, transport=Stdio(command="x", args=(f"--{name.lower()}", WORD))
    )

    for spec in (local, option):
        assert Mask.of(secrets_in_spec(spec)).mask_known(f"it is {WORD}") == f"it is {MASKED}"
    assert WORD not in " ".join(mask_command(("x", f"--{name.lower()}", WORD)))
    other = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env={"OTHER": WORD}))
    assert secrets_in_spec(other) == (), "control"


@pytest.mark.parametrize(
    "argument",
    [
        "npx -y @scope/package@latest",
        "npx owner/package@latest",
        "npm:left-pad@latest",
        "library/image:stable@sha256:0a1b",
        "git@github.com:owner/repository.git",
        "http://localhost:3000/@scope/package",
        "localhost:8080/package@version",
        "--key ./folder/private",
        "--seed 1234567",
        "--sort-key lastname",
        "someone@example.com",
        "PWD=/home/someone",
        "${TOKEN} next",
    ],
)
def test_ordinary_arguments_are_not_masked(argument: str):
    words = ("x", *argument.split())

    assert mask_command(words) == words
    assert [secret for secret in secrets_in_arguments(words) if len(secret) >= MIN_SECRET_LENGTH] == []


@pytest.mark.parametrize(
    "unit",
    ["a:b@", "password='", "jdbc:oracle:x:/@", "machine login password ", "-u -p ", "PWD={", "://a@", "key="],
)
def test_secrets_in_a_value_are_found_in_linear_time(unit: str):
    """Quadratic time would take minutes."""
    value = unit * (100_000 // len(unit))
    spec = ServerSpec(name="s", source=Source.USER, transport=Stdio(command="x", env={"DB_KEY": value}))

    assert secrets_in_spec(spec)


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
