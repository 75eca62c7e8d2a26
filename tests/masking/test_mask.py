"""What is masked, and what is not."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.builtin.shell.environment import without_keys_and_tokens
from holdfast.masking import MASKED
from holdfast.masking.configured_secrets import secrets_in_mapping
from holdfast.masking.events import mask_event
from holdfast.masking.known_secrets import MIN_SECRET_LENGTH
from holdfast.masking.mask import Mask, mask_json
from holdfast.masking.secret_names import is_secret_name
from holdfast.masking.urls import mask_url_passwords
from holdfast.model.event import ModelResponded, Outcome, ToolCalled, ToolEnded
from holdfast.model.json import Json

SECRET = 'p@ss"w0rd/ü\n1'


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    "text",
    [
        f"it is {SECRET}!",
        json.dumps({"a": SECRET}),
        json.dumps({"a": SECRET}, ensure_ascii=False),
        repr({"a": SECRET}),
        f"https://x/?q={quote(SECRET)}",
        f"https://x/?q={quote(SECRET, safe='')}",
        f"https://x/?next={quote('https://y/?q=' + quote(SECRET, safe=''), safe='')}",
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_known_secret_is_masked_in_every_encoding(text: str) -> None:
    masked = Mask.of([SECRET]).mask_known(text)

    assert MASKED in masked
    assert "w0rd" not in masked


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd"])
@pytest.mark.parametrize("secret", ["a-long-and-random-secret", "s3cr3t", "hunter2"])
@pytest.mark.parametrize("after", ["", "\n", "\n\n"])
def test_less_than_a_byte_of_a_secret_is_left_in_base64(user: str, secret: str, after: str) -> None:
    encoded = base64.b64encode(f"{user}:{secret}{after}".encode()).decode()

    before, masked, rest = Mask.of([secret]).mask_known(f"header {encoded}").partition(MASKED)

    begin, end = 8 * len(f"{user}:"), 8 * len(f"{user}:{secret}")
    bits_before = 6 * len(before.removeprefix("header ")) - begin
    bits_after = end - 6 * (len(encoded) - len(rest))
    assert masked
    assert (0 <= bits_before < 8, 0 <= bits_after < 8) == (True, True)


@given(secret=st.text(min_size=MIN_SECRET_LENGTH), before=st.text(), after=st.text())
def test_known_secret_is_masked_in_any_text(secret: str, before: str, after: str) -> None:
    masked = Mask.of([secret]).mask_known(f"{before}{secret}{after}")

    assert secret not in masked.replace(MASKED, "\0") or secret in MASKED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values)
def test_mask_without_secrets_changes_no_values(value: Json) -> None:
    assert Mask().mask_known_in_json(value) == value


@given(parts=st.sets(st.lists(st.sampled_from(["abcdef", MASKED, " (2)", "-"]), max_size=4).map("".join)))
def test_masked_object_has_as_many_values_as_before(parts: set[str]) -> None:
    value: Json = {key: number for number, key in enumerate(parts)}

    masked = Mask.of(["abcdef"]).mask_known_in_json(value)

    assert isinstance(masked, dict)
    assert list(masked.values()) == list(value.values())
    assert [key for key in masked if "abcdef" in key] == []


def test_any_value_under_a_secret_name_is_masked() -> None:
    value: Json = {
        "user": "ada",
        "password": "x",
        "nested": [{"API-Key": {"deep": 1}}],
        "token": 7,
        "secret": None,
    }

    assert Mask().mask_all_in_json(value) == {
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
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


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
def test_names_that_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("line", "masked"),
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
def test_log_line_is_masked_where_it_looks_like_a_secret(line: str, masked: str) -> None:
    assert Mask().mask_all(line) == masked


def test_short_value_is_masked_only_under_its_name() -> None:
    mask = Mask.of(["on"])

    assert (mask.mask_known("go on"), mask.mask_all_in_json({"password": "on"})) == (
        "go on",
        {"password": MASKED},
    )


def test_secrets_in_an_environment_are_found_by_name() -> None:
    entries = {"PATH": "/usr/bin", "API_KEY": "k1", "Authorization": "Bearer abc", "EMPTY_TOKEN": ""}

    assert secrets_in_mapping(entries) == ("k1", "Bearer abc", "abc")


def test_pwd_is_not_a_secret() -> None:
    entries = {"PWD": "/home/me/project", "OLDPWD": "/home/me", "DB_PWD": "hunter2"}

    assert secrets_in_mapping(entries) == ("hunter2",)


@pytest.mark.promise("AUD-03")
def test_value_beside_a_secret_name_is_masked() -> None:
    headers: Json = [
        {"name": "Authorization", "value": "Bearer abc"},
        {"name": "PASSWORD", "value": {"deep": 1}},
        {"name": "Accept", "value": "text/html"},
        {"name": 5, "value": "five"},
        {"value": "alone"},
    ]

    assert Mask().mask_all_in_json(headers) == [
        {"name": "Authorization", "value": MASKED},
        {"name": "PASSWORD", "value": MASKED},
        {"name": "Accept", "value": "text/html"},
        {"name": 5, "value": "five"},
        {"value": "alone"},
    ]


def test_combined_mask_masks_longer_secrets_first() -> None:
    mask = Mask.of(["secret"]).plus(Mask.of(["secret-and-more"]))

    assert mask.mask_known("secret-and-more, secret") == f"{MASKED}, {MASKED}"


def test_masking_a_long_line_is_fast() -> None:
    line = "password" * 20_000 + "://" * 20_000 + "bearer " * 20_000

    assert Mask().mask_all(line)


secret_texts = st.sampled_from(
    [
        *("hunter22", "x hunter22 y", "plain", "", "https://u:pass@host/hunter22"),
        *('"\n\\ hunter22', 'a"b\\c\td', "é 3.5", "a" * 5000 + "hunter22"),
    ]
)
secret_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1234567890, 1234567890.0, 1.25e16, 2.5])
    | secret_texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            secret_texts | st.sampled_from(["api_key", "name", "value", "token"]), inner, max_size=3
        )
    ),
)


@pytest.mark.slow
@pytest.mark.promise("AUD-03")
@given(value=secret_values, by_name=st.booleans())
def test_one_search_in_all_texts_masks_the_same_as_one_in_each(value: Json, by_name: bool) -> None:
    mask = Mask.of(["hunter22", "1234567890", "12500000000000000", 'a"b\\c\td'])

    def mask_text(text: str) -> str:
        return mask_url_passwords(mask.mask_known(text)) if by_name else mask.mask_known(text)

    masked = mask.mask_all_in_json(value) if by_name else mask.mask_known_in_json(value)

    assert masked == mask_json(value, mask.find, mask_text, by_name=by_name)


@pytest.mark.promise("AUD-03")
@example(value={"a": 12.5e15}, ascii_only=False)  # written as 1.25e+16, and masked as 12500000000000000
@example(value={"a": 'a"b\\c\td'}, ascii_only=False)
@example(value={"hunter22": 1234567890}, ascii_only=True)
@given(value=secret_values, ascii_only=st.booleans())
def test_a_search_in_the_json_text_of_an_event_masks_the_same_as_one_in_its_values(
    value: Json, ascii_only: bool
) -> None:
    mask = Mask.of(["hunter22", "1234567890", "12500000000000000", 'a"b\\c\td', "pässwörd"])
    arguments: dict[str, Json] = value if isinstance(value, dict) else {"value": value}
    called = ToolCalled(call_id="c", server="s", tool="t", arguments=arguments, title="x")
    ended = ToolEnded(call_id="c", outcome=Outcome.COMPLETED, content=(arguments,), structured=value)
    raw = json.dumps(arguments, ensure_ascii=ascii_only).encode()
    raw_result = b"%b,%b" % (raw, json.dumps(value, ensure_ascii=ascii_only).encode())

    assert mask_event(called, mask, raw) == mask_event(called, mask)
    assert mask_event(ended, mask, raw_result) == mask_event(ended, mask)


def test_a_secret_in_the_name_of_a_tool_is_masked_if_the_json_text_is_searched() -> None:
    called = ToolCalled(call_id="c", server="hunter22", tool="t", arguments={}, title="x")

    masked = mask_event(called, Mask.of(["hunter22"]), b"{}")

    assert isinstance(masked, ToolCalled)
    assert masked.server == MASKED


def test_json_without_secrets_is_not_copied() -> None:
    value: Json = {"a": ["b", {"c": 1}]}

    assert Mask.of(["hunter22"]).mask_known_in_json(value) is value


def test_a_secret_in_the_id_that_an_endpoint_gives_a_call_is_masked_in_both_places() -> None:
    part: Json = {"part_kind": "tool-call", "tool_call_id": "hunter22", "args": {}}
    event = ModelResponded(model="m", message={"parts": [part]}, calls={"hunter22": "call_1"}, usage={})

    masked = mask_event(event, Mask.of(["hunter22"]))

    assert isinstance(masked, ModelResponded)
    assert "hunter22" not in str(masked)
    assert str(next(iter(masked.calls))) in str(masked.message), "the call is still found by its id"


def test_a_command_does_not_see_the_variable_with_the_endpoint_s_key() -> None:
    environ = {"EX_KEY": "a", "OPENAI_API_KEY": "b", "LANG": "C"}

    assert without_keys_and_tokens(environ, "EX_KEY") == {"LANG": "C"}
    assert without_keys_and_tokens(environ) == {"EX_KEY": "a", "LANG": "C"}
