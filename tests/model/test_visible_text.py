import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.visible_text import is_visible, quote, replace_invisible, strip_invisible, to_line


@given(st.text())
def test_strip_invisible_removes_control_characters_and_is_idempotent(text: str):
    shown = strip_invisible(text)

    assert strip_invisible(shown) == shown
    assert not any(letter in shown for letter in "\x00\x07\x1b\x7f\u200b\u202e\ufeff")


def test_letters_without_shape_and_separators_are_removed():
    assert strip_invisible("a\u3164b\u2028c\U000e0100d\u2800e ⚠\ufe0f\tf\n") == "abcde ⚠\ufe0f\tf\n"


def test_a_text_becomes_one_line():
    assert to_line(" a\r\n\tb \u202e c\x85d ") == "a b cd"


@given(st.text(st.characters() | st.sampled_from("a⚠1\ufe0e\ufe0f\u20e3\u3164\x1b\n")))
def test_replaced_text_is_visible_and_visible_text_is_not_changed(text: str):
    replaced = replace_invisible(text, lambda _: "�")

    assert is_visible(replaced)
    assert (replaced == text) == is_visible(text)
    assert not is_visible(text) or strip_invisible(text) == text


def test_quoted_text_keeps_letters_with_accents_and_escapes_those_that_look_like_others():
    assert quote("Häuser für Ñandús, ß ø") == '"Häuser für Ñandús, ß ø"'
    # Cyrillic, an accent on a thin letter, a dot below, a ligature, a backslash as it is written.
    assert quote("с í ạ ﬁ \\u00e4") == r'"\u0441 \u00ed \u1ea1 \ufb01 \\u00e4"'


@given(st.text())
def test_quoted_text_is_json_of_the_same_text_and_visible(text: str):
    assert json.loads(quote(text)) == text
    assert is_visible(quote(text))
