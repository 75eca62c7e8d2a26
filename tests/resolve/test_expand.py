import pytest

from holdfast.resolve.expand import Missing, expand, variables

ENVIRON = {"HOME": "/home/me", "EMPTY": "", "TRICK": "${HOME}"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain $HOME $(id) `id` {HOME}", "plain $HOME $(id) `id` {HOME}"),
        ("${HOME}/x", "/home/me/x"),
        ("${NOPE:-there}/${HOME:-y}", "there//home/me"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NOPE:-}", ""),
        ("${TRICK}", "${HOME}"),
        ("${not a name}", "${not a name}"),
    ],
)
def test_variables_are_filled_in_once_and_nothing_else_is_touched(text: str, filled: str):
    assert expand(text, ENVIRON) == filled


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(Missing, match="NOPE"):
        expand("x${NOPE}", ENVIRON)


def test_the_variables_of_a_text_are_known_without_filling_it_in():
    assert variables("${A}-${B:-x} $C") == ("A", "B")
