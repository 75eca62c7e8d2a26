"""What is hidden, and what is not."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.json import Json
from holdfast.model.mask import MASKED, SHORTEST, Mask, secrets_in, tells

SECRET = 'p@ss"w0rd/ü\n1'


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    "shown",
    [
        f"it is {SECRET}!",
        json.dumps({"a": SECRET}),
        json.dumps({"a": SECRET}, ensure_ascii=False),
        repr({"a": SECRET}),
        f"https://x/?q={quote(SECRET)}",
        f"https://x/?q={quote(SECRET, safe='')}",
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_secret_is_hidden_in_every_spelling(shown: str) -> None:
    hidden = Mask.of([SECRET]).text(shown)

    assert MASKED in hidden
    assert "w0rd" not in hidden


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd"])
def test_a_secret_inside_of_basic_credentials_is_hidden(user: str) -> None:
    encoded = base64.b64encode(f"{user}:a-long-and-random-secret".encode()).decode()

    hidden = Mask.of(["a-long-and-random-secret"]).text(f"header {encoded}")

    assert MASKED in hidden
    assert len(hidden) < len(f"header {encoded}")


@given(secret=st.text(min_size=SHORTEST), before=st.text(), after=st.text())
def test_no_text_shows_a_known_secret(secret: str, before: str, after: str) -> None:
    hidden = Mask.of([secret]).text(f"{before}{secret}{after}")

    assert secret not in hidden.replace(MASKED, "\0") or secret in MASKED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values)
def test_a_mask_without_secrets_leaves_values_alone(value: Json) -> None:
    assert Mask().values(value) == value


def test_what_stands_under_a_telling_name_is_hidden_whatever_it_is() -> None:
    told: Json = {
        "user": "ada",
        "password": "x",
        "nested": [{"API-Key": {"deep": 1}}],
        "token": 7,
        "secret": None,
    }

    assert Mask().json(told) == {
        "user": "ada",
        "password": MASKED,
        "nested": [{"API-Key": MASKED}],
        "token": MASKED,
        "secret": None,
    }


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "password",
        "userPassword",
        "DB_PASSWORD",
        "api_key",
        "apiKey",
        "X-API-Key",
        "OPENAI_API_KEY",
        "access_token",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "Set-Cookie",
        "private_key",
        "passphrase",
    ],
)
def test_names_that_tell(name: str) -> None:
    assert tells(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokens",
        "progressToken",
        "nextPageToken",
        "path",
        "key",
        "author",
        "keyboard",
        "title",
        "secretary",
    ],
)
def test_names_that_do_not_tell(name: str) -> None:
    assert not tells(name)


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: Bearer {MASKED}"),
        ("got basic dXNlcjpwYXNz here", f"got basic {MASKED} here"),
        ("password=hunter2&x=1", f"password={MASKED}&x=1"),
        ('{"api_key": "abc123"}', f'{{"api_key": "{MASKED}"}}'),
        (r"{\"token\": \"abc123\"}", rf"{{\"token\": \"{MASKED}\"}}"),
        ("postgres://ada:hunter2@db/x", f"postgres://ada:{MASKED}@db/x"),
        ("the password is wrong", "the password is wrong"),
        ("1,234 tokens: fine", "1,234 tokens: fine"),
    ],
)
def test_a_line_for_a_log_hides_what_looks_like_a_secret(line: str, hidden: str) -> None:
    assert Mask().line(line) == hidden


def test_a_value_too_short_to_be_told_from_words_is_hidden_under_its_name_only() -> None:
    mask = Mask.of(["on"])

    assert (mask.text("go on"), mask.json({"password": "on"})) == ("go on", {"password": MASKED})


def test_the_secrets_of_an_environment_are_those_under_telling_names() -> None:
    entries = {"PATH": "/usr/bin", "API_KEY": "k1", "Authorization": "Bearer abc", "EMPTY_TOKEN": ""}

    assert secrets_in(entries) == ("k1", "Bearer abc", "abc")


def test_the_folder_a_shell_is_in_is_no_secret() -> None:
    entries = {"PWD": "/home/me/project", "OLDPWD": "/home/me", "DB_PWD": "hunter2"}

    assert secrets_in(entries) == ("hunter2",)


@pytest.mark.promise("AUD-03")
def test_what_is_listed_beside_a_telling_name_is_hidden() -> None:
    headers: Json = [
        {"name": "Authorization", "value": "Bearer abc"},
        {"name": "PASSWORD", "value": {"deep": 1}},
        {"name": "Accept", "value": "text/html"},
        {"name": 5, "value": "five"},
        {"value": "alone"},
    ]

    assert Mask().json(headers) == [
        {"name": "Authorization", "value": MASKED},
        {"name": "PASSWORD", "value": MASKED},
        {"name": "Accept", "value": "text/html"},
        {"name": 5, "value": "five"},
        {"value": "alone"},
    ]


def test_masks_add_up_and_longer_secrets_go_first() -> None:
    mask = Mask.of(["secret"]).plus(Mask.of(["secret-and-more"]))

    assert mask.text("secret-and-more, secret") == f"{MASKED}, {MASKED}"


def test_a_long_line_is_masked_in_little_time() -> None:
    line = "password" * 20_000 + "://" * 20_000 + "bearer " * 20_000

    assert Mask().line(line)
