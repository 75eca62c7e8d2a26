import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.limits import Limits
from holdfast.wire.strict_json import StrictJsonError, check_json, check_utf8, decode_strict, has_more_values

LIMITS = Limits(depth=8, digits=40, values=60)

documents: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def reason(text: bytes, limits: Limits = LIMITS) -> str:
    with pytest.raises(StrictJsonError) as refused:
        check_json(text, limits)
    return str(refused.value)


@given(
    documents, st.booleans(), st.sampled_from([None, (", ", ": "), (",", ":")]), st.sampled_from([None, 1])
)
def test_valid_documents_are_accepted(document: Any, ascii_only: bool, separators: Any, indent: Any):
    text = json.dumps(document, ensure_ascii=ascii_only, separators=separators, indent=indent).encode()

    check_json(text, Limits())


@given(documents, st.text(), documents, documents, st.booleans())
def test_duplicate_key_is_found_at_any_position(
    outer: Any, key: str, first: Any, second: Any, ascii_only: bool
):
    def write(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    twice = f"{{{write(key)}:{write(first)},{write(key)}: {write(second)}}}"
    text = f"[{write(outer)},{{{write(key)}:{twice}}}]".encode()

    assert reason(text, Limits()) == "an object has a duplicate key"


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a":1,"a":1}',
        rb'{"a":1,"\u0061":2}',
        rb'{"a":{"b":[{"c":1,"c":"\":"}]}}',
        rb'{"a\\":1, "a\\":2}',
        rb'{"":0,"":0}',
        rb'{"a":1e3,"a":1000.0}',
    ],
)
def test_duplicate_key_is_found_in_any_spelling(text: bytes):
    assert reason(text) == "an object has a duplicate key"


def test_brackets_and_colons_in_strings_do_not_count():
    check_json(json.dumps({"a:b": "[" * 50 + ":" * 50 + '"\\' * 20, "c": "1" * 50}).encode(), LIMITS)


def test_nesting_is_limited():
    check_json(b"[" * 8 + b"]" * 8, LIMITS)
    check_json(b'{"a":' * 8 + b"1" + b"}" * 8, LIMITS)

    assert reason(b"[" * 9 + b"]" * 9) == "it is nested more than 8 levels deep"
    assert reason(b"[[],{}," * 9 + b"1" + b"]" * 9) == "it is nested more than 8 levels deep"
    assert reason(b"[" * 200_000 + b"]" * 200_000, Limits()) == "it has more than 100000 values"
    assert (
        reason(b"[" * 200_000 + b"]" * 200_000, Limits(values=10**6))
        == "it is nested more than 128 levels deep"
    )


def test_digits_of_a_number_are_limited():
    check_json(b"9" * 40, LIMITS)

    assert reason(b"9" * 41) == "a number has more than 40 digits"
    assert reason(b'{"a":-' + b"9" * 5000 + b"}", Limits()) == "a number has more than 100 digits"


def test_number_of_values_is_limited():
    assert reason(b"[" + b"1," * 60 + b"1]") == "it has more than 60 values"
    assert reason(b'["' + b'","' * 300 + b'"]') == "it has more than 60 values"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a":"\xff"}', "it is not UTF-8"),
        (b'{"a":NaN}', "JSON is malformed: invalid character (byte 5)"),
        (b'{"a":"\x00"}', "JSON is malformed: invalid character (byte 6)"),
        (b"[" * 60, "Input data was truncated"),
        (b"]" * 60, "JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_invalid_json_gives_the_position(text: bytes, why: str):
    assert reason(text) == why


def test_document_of_the_wrong_type_gives_the_path():
    with pytest.raises(StrictJsonError, match=r"Expected `int`, got `str` - at `\$\[...\]`"):
        decode_strict(b'{"a":"b"}', dict[str, int], LIMITS)


SLICE = 256 * 1024


@pytest.mark.parametrize("character", ["é", "€", "🙂"])
@pytest.mark.parametrize("before", [SLICE - 3, SLICE - 2, SLICE - 1, SLICE])
def test_long_utf8_is_accepted_wherever_it_is_cut(character: str, before: int):
    check_utf8(b"x" * before + character.encode() + b"x" * SLICE)


@pytest.mark.parametrize("before", [SLICE - 2, SLICE - 1, SLICE])
@pytest.mark.parametrize("after", [b"", b"x" * SLICE])
def test_long_text_that_is_not_utf8_is_refused(before: int, after: bytes):
    with pytest.raises(UnicodeDecodeError):
        check_utf8(b"x" * before + "🙂".encode()[:2] + after)


def test_values_of_a_long_document_are_counted_in_all_parts():
    commas = b"," * 40
    text = b"[" + b"1" * SLICE + commas + b"1" * SLICE + commas + b"]"

    assert [has_more_values(text, values) for values in (80, 81)] == [True, False]
