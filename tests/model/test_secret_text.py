"""Which parts of a text, a command or a URL are masked, and what stays readable."""

import pytest

from holdfast.model.json import Json
from holdfast.model.mask import MASKED
from holdfast.model.secret_text import looks_generated, mask_likely_secrets
from holdfast.model.secrets import mask_command, secrets_in_arguments, secrets_in_json, secrets_in_mapping

GENERATED = "q7Rk2Zp9Xw4Lm8Tb1Vn6"


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://bob:hunter2@db:5432/x", "postgres://bob:[masked]@db:5432/x"),
        ("postgres://bob:hun/ter2@db/x", "postgres://bob:[masked]@db/x"),
        ("redis://:pw@cache", "redis://:[masked]@cache"),
        ("https://ghp_abcdefghij1234567890@github.com/a", "https://[masked]@github.com/a"),
        ("GET https://x/mcp?tenant=a&k=b failed", "GET https://x/mcp?tenant=[masked]&k=[masked] failed"),
        ("https://x/#access_token=abc", "https://x/#access_token=[masked]"),
        ("https://x/hooks/T000/B000/xxxx", "https://x/hooks/[masked]/[masked]/[masked]"),
        (f"https://x/mcp/{GENERATED}/sse", "https://x/mcp/[masked]/sse"),
        ("run --api-key hunter2 now", "run --api-key [masked] now"),
        ("DB_PASS=ab OPENAI_KEY='my long one'", "DB_PASS=[masked] OPENAI_KEY='[masked]'"),
        ("Authorization: Token abc def", "Authorization: Token [masked]"),
        ("Cookie: a=b; c=d", "Cookie: [masked]"),
        ('{"pin_token": 1234, "n": 1}', '{"pin_token": "[masked]", "n": 1}'),
        # What stays.
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
        ("http://host:80/@scope/pkg@1.0", "http://host:80/@scope/pkg@1.0"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("--token is required", "--token is required"),
        ("PASSWORD=${PW} https://h/?x=${V}", "PASSWORD=${PW} https://h/?x=${V}"),
        ("KeyError: 'foo'", "KeyError: 'foo'"),
        ('{"auth": {"user": "x"}}', '{"auth": {"user": "x"}}'),
    ],
)
def test_secret_is_masked_by_its_place(text: str, masked: str) -> None:
    assert mask_likely_secrets(text) == masked


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (
            ("npx", "-y", "@scope/pkg@1.2.3", "--api-key", "pw"),
            ("npx", "-y", "@scope/pkg@1.2.3", "--api-key", MASKED),
        ),
        (
            ("s", "--api-key=pw", "PASSWORD=pw", "user=bob"),
            ("s", "--api-key=[masked]", "PASSWORD=[masked]", "user=bob"),
        ),
        (("s", "--header", "Authorization: Bearer pw"), ("s", "--header", "Authorization: Bearer [masked]")),
        (("s", "-H", "X-Own: pw", "-H", "Accept: a"), ("s", "-H", "X-Own: [masked]", "-H", "Accept: a")),
        (("s", "-p", "pass word"), ("s", "-p", MASKED)),
        (("curl", "-u", "bob:pw"), ("curl", "-u", "bob:[masked]")),
        (("mysql", "-psecret"), ("mysql", "-p[masked]")),
        (("s", GENERATED), ("s", MASKED)),
        (("s", f"--own={GENERATED}"), ("s", "--own=[masked]")),
        (("s", "--api-key", "pre-${X}"), ("s", "--api-key", MASKED)),
        (("s", "--password", "12345678"), ("s", "--password", MASKED)),
        # What stays.
        (("s", "--token", "${TOKEN}", "${X}"), ("s", "--token", "${TOKEN}", "${X}")),
        (("s", "--header", "Authorization: Bearer ${T}"), ("s", "--header", "Authorization: Bearer ${T}")),
        (("docker", "run", "-p", "80:80", "-e", "A=b"), ("docker", "run", "-p", "80:80", "-e", "A=b")),
        (("s", "--use-token", "--verbose"), ("s", "--use-token", "--verbose")),
        (("i@sha256:" + "ab12" * 16,), ("i@sha256:" + "ab12" * 16,)),
    ],
)
def test_command_in_a_listing(command: tuple[str, ...], masked: tuple[str, ...]) -> None:
    assert mask_command(command) == masked


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    "value",
    [
        GENERATED,
        "4f9a2c81d3e7b6a5f0e1",
        "sk-proj-abcdefghijkl",
        "123e4567-e89b-12d3-a456-426614174000",
        "eyJhbGciOiJIUzI1NiJ9",
    ],
)
def test_generated_value(value: str) -> None:
    assert looks_generated(value)


@pytest.mark.parametrize(
    "value",
    [
        "mcp-server-sqlite3-v2", "@modelcontextprotocol/server-github", "/home/me/4f9a2c81d3e7b6a5f0e1/x", "2026-11-17T10:00:00Z",
        "ModelContextProtocolServer", "configuration-file", "12345678901234567890", "sha256:" + "ab12" * 16,
    ],
)  # fmt: skip
def test_value_that_is_not_generated(value: str) -> None:
    assert not looks_generated(value)


def test_known_secrets_of_an_entry() -> None:
    entry: Json = {
        "url": "https://x/mcp?tenant=holdfast&key=k1k1k1",
        "env": {
            "DATABASE_URL": "postgres://u:p1p1p1@db/x",
            "DB_PASS": 12345678,
            "A_KEY": "left-${X}-right",
            "REGION": "eu",
        },
        "args": ["--token", "${TOKEN}", "PASSWORD=p2p2p2", "${A:-x}"],
    }

    assert set(secrets_in_json(entry)) - {""} == {
        "k1k1k1", "p1p1p1", "12345678", "left-", "-right", "p2p2p2",
    }  # fmt: skip


def test_password_of_a_url_in_any_variable_is_a_secret() -> None:
    assert secrets_in_mapping({"DATABASE_URL": "postgres://u:hunter2@db/x?sslmode=require"}) == ("hunter2",)


@pytest.mark.parametrize(
    "hostile",
    [
        "${a:-",
        "--token ",
        'token="',
        "://a:",
        "a=b:",
        "/@",
        "sha256:",
        "a@",
        "1a",
        "token='\\",
        "Authorization: ",
        "Bearer ",
        "?a&b;",
    ],
)
def test_time_is_linear(hostile: str) -> None:
    """A quadratic scan would take minutes."""
    text = hostile * (100_000 // len(hostile))

    assert mask_likely_secrets(text)
    list(secrets_in_arguments([text, text]))
    list(secrets_in_json({"token": text}))
