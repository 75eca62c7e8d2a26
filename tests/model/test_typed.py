import json

import pytest

from holdfast.model.mask import Mask
from holdfast.model.typed import all_typed, typed

NOTHING = Mask()


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("text", "kept"),
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
def test_what_stands_under_a_telling_name_in_a_typed_call_is_hidden(text: str, kept: str):
    assert typed(text, NOTHING) == kept


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
def test_whatever_else_was_said_is_kept_to_the_letter(text: str):
    assert typed(text, NOTHING) == text


def test_known_secrets_are_hidden_wherever_they_stand():
    mask = Mask.of(["hunter2!"])

    kept = typed(f"hunter2! said\n/call a.b {json.dumps({'note': 'hunter2!'})}\n/call hunter2!", mask)

    assert kept == '[masked] said\n/call a.b {"note": "[masked]"}\n/call [masked]'


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (
            ['/call a.b {"deep": {', '"token": "hunter2"', "}}"],
            ['/call a.b {"deep": {', "[masked]", "[masked]"],
        ),
        (['/call a.b {"password":', '"hunter2"}', "/help"], ["/call a.b [masked]", "[masked]", "/help"]),
        (["/call a.b", '{"token": "hunter2"}\n/help'], ["/call a.b", "[masked]\n/help"]),
        (["/call a.b {}", '"token": "said"'], ["/call a.b {}", '"token": "said"']),
    ],
    ids=["in the midst", "its value", "before", "not at all"],
)
def test_a_call_that_goes_on_in_the_next_text_is_masked_there_too(texts: list[str], kept: list[str]):
    assert all_typed(texts, NOTHING) == kept
