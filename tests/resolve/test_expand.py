import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.resolve.expand import MAX_EXPANDED_LENGTH, Expander, ExpandError, referenced_variables

ENVIRON = {"HOME": "/home/me", "EMPTY": "", "TRICK": "${HOME}", "LONG": "x" * 1000}
PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain $HOME $(id) `id` {HOME}", "plain $HOME $(id) `id` {HOME}"),
        ("${HOME}/x", "/home/me/x"),
        ("${NOPE:-there}/${HOME:-y}", "there//home/me"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NOPE:-}", ""),
        ("${TRICK}", "${HOME}"),
        ("${not a name}", "${not a name}"),
        ("${${HOME}", "${/home/me"),
        ("${NOPE:-${HOME}", "${HOME"),
        ("${NOPE:-unclosed", "${NOPE:-unclosed"),
    ],
)
def test_variables_are_expanded_once_and_other_text_is_unchanged(text: str, expanded: str):
    assert Expander(ENVIRON).expand(text) == expanded


def test_error_names_the_unset_variable():
    with pytest.raises(ExpandError, match="The variable NOPE is not set"):
        Expander(ENVIRON).expand("x${NOPE}")


def test_length_of_all_expanded_texts_of_an_entry_is_limited():
    expander = Expander(ENVIRON)
    many = MAX_EXPANDED_LENGTH // 1000
    expander.expand("${LONG}" * many)

    with pytest.raises(ExpandError, match="more than 1048576 characters"):
        expander.expand("${LONG}")


def test_referenced_variables_lists_names_without_expanding():
    assert referenced_variables("${A}-${B:-x} $C") == ("A", "B")


@given(st.text(alphabet="${}:-aB_1 ", max_size=40))
def test_references_are_the_same_as_those_of_a_pattern(text: str):
    assert referenced_variables(text) == tuple(found[1] for found in PATTERN.finditer(text))
    environ = dict.fromkeys(referenced_variables(text), "")
    assert Expander(environ).expand(text) == PATTERN.sub(lambda found: found[2] or "", text)
