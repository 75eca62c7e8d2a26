"""Which parts of a text are masked, and what stays readable."""

import pytest

from holdfast.masking.configured_secrets import secrets_in_arguments, secrets_in_json
from holdfast.masking.likely_secrets import mask_likely_secrets


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("run --api-key hunter2 now", "run --api-key [masked] now"),
        ("DB_PASS=ab OPENAI_KEY='my long one'", "DB_PASS=[masked] OPENAI_KEY='[masked]'"),
        ("Authorization: Token abc def", "Authorization: Token [masked]"),
        ("Cookie: a=b; c=d", "Cookie: [masked]"),
        ('{"pin_token": 1234, "n": 1}', '{"pin_token": "[masked]", "n": 1}'),
        ("psql postgres://bob:hunter2@db/x", "psql postgres://bob:[masked]@db/x"),
        # These stay readable.
        ("--token is required", "--token is required"),
        ("PASSWORD=${PW} https://h/?x=${V}", "PASSWORD=${PW} https://h/?x=${V}"),
        ("Set it, or give a default: ${API_KEY:-…}.", "Set it, or give a default: ${API_KEY:-…}."),
        ("KeyError: 'foo'", "KeyError: 'foo'"),
        ('{"auth": {"user": "x"}}', '{"auth": {"user": "x"}}'),
    ],
)
def test_secret_is_masked_by_its_place(text: str, masked: str) -> None:
    assert mask_likely_secrets(text) == masked


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
