import json

import pytest

from holdfast.masking.mask import Mask
from holdfast.masking.prompts import mask_prompt, mask_prompts

NO_SECRETS = Mask()


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('/call db.open {"user": "me", "password": "hunter2 too"}', '/call db.open {"user": "me", "password": "[masked]"}'),
        ('  /call db.open   {"deep": [{"apiKey": {"a": "hunter2"}}]}\n', '  /call db.open   {"deep": [{"apiKey": "[masked]"}]}\n'),
        ('/call a.b {}\n/call c.d {"token": "hunter2"}', '/call a.b {}\n/call c.d {"token": "[masked]"}'),
        ('/call c.d {"token": "hunter2", "bidi": "\\u202e"}', '/call c.d {"token": "[masked]", "bidi": "\\u202e"}'),
        ('/call c.d {"password": "hunter2", "password": ""}', "/call c.d [masked]"),
        ('/call c.d {"password": "hunter2"', "/call c.d [masked]"),
        ('/call c.d{"password": "hunter2"}', '/call c.d{"password": "[masked]"}'),
        ('/call {"password": "hunter2"}', '/call {"password": "[masked]"}'),
        ("/call c.d " + '{"secret":' * 100_000, "/call c.d [masked]"),
        ('/call c.d\n{\n "token":\n "hunter2"\n}\nmy token, as said\n/tools', '/call c.d\n{"token": "[masked]"}\nmy token, as said\n/tools'),
        ('/call c.d {} {"token": "hunter2"}', "/call c.d [masked]"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_secret_arguments_of_a_typed_call_are_masked(text: str, masked: str):
    assert mask_prompt(text, NO_SECRETS) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my password: it is a long story",
        '/call files.list {"path":   "."}',
        "/call files.list {not json at all",
        "/call",
        '/tools {"password": "p"}',
        'see /call x {"password": "said, not called"}',
        '/callous x {"password": "no such command"}',
        '/call x {\n "a": 1\n}\nmy password is said here',
    ],
)
def test_text_without_secret_arguments_is_unchanged(text: str):
    assert mask_prompt(text, NO_SECRETS) == text


def test_known_secrets_are_masked_anywhere():
    mask = Mask.of(["hunter2!"])

    masked = mask_prompt(f"hunter2! said\n/call a.b {json.dumps({'note': 'hunter2!'})}\n/call hunter2!", mask)

    assert masked == '[masked] said\n/call a.b {"note": "[masked]"}\n/call [masked]'


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("texts", "masked"),
    [
        (
            ['/call a.b {"deep": {', '"token": "hunter2"', "}}"],
            ['/call a.b {"deep": {', "[masked]", "[masked]"],
        ),
        (['/call a.b {"password":', '"hunter2"}', "/help"], ["/call a.b [masked]", "[masked]", "/help"]),
        (["/call a.b", '{"token": "hunter2"}\n/help'], ["/call a.b", "[masked]\n/help"]),
        (["/call a.b {}", '"token": "said"'], ["/call a.b {}", '"token": "said"']),
    ],
    ids=["in the middle", "at a value", "before the arguments", "complete"],
)
def test_call_that_continues_in_the_next_text_is_masked_there_too(texts: list[str], masked: list[str]):
    assert mask_prompts(texts, NO_SECRETS) == masked
