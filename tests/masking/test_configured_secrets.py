"""Which parts of a command or a server's entry are secrets, and what stays readable in a listing."""

import pytest

from holdfast.masking import MASKED
from holdfast.masking.configured_secrets import mask_command, secrets_in_json, secrets_in_mapping
from holdfast.model.json import Json

GENERATED = "q7Rk2Zp9Xw4Lm8Tb1Vn6"


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
        # These stay readable.
        (("s", "--token", "${TOKEN}", "${X}"), ("s", "--token", "${TOKEN}", "${X}")),
        (("s", "--header", "Authorization: Bearer ${T}"), ("s", "--header", "Authorization: Bearer ${T}")),
        (("docker", "run", "-p", "80:80", "-e", "A=b"), ("docker", "run", "-p", "80:80", "-e", "A=b")),
        (("s", "--use-token", "--verbose"), ("s", "--use-token", "--verbose")),
        (("i@sha256:" + "ab12" * 16,), ("i@sha256:" + "ab12" * 16,)),
    ],
)
def test_command_in_a_listing(command: tuple[str, ...], masked: tuple[str, ...]) -> None:
    assert mask_command(command) == masked


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


def test_password_that_is_joined_to_its_option_in_an_entry() -> None:
    entry: Json = {"command": "/usr/bin/mysql", "args": ["-pp1p1p1", "shop"]}

    assert [*secrets_in_json(entry)] == ["p1p1p1"]


def test_password_of_a_url_in_any_variable_is_a_secret() -> None:
    assert secrets_in_mapping({"DATABASE_URL": "postgres://u:hunter2@db/x?sslmode=require"}) == ("hunter2",)
