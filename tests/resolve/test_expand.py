import pytest

from holdfast.resolve.expand import MissingVariableError, expand, referenced_variables

ENVIRON = {"HOME": "/home/me", "EMPTY": "", "TRICK": "${HOME}"}


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
    ],
)
def test_variables_are_expanded_once_and_other_text_is_unchanged(text: str, expanded: str):
    assert expand(text, ENVIRON) == expanded


def test_error_names_the_unset_variable():
    with pytest.raises(MissingVariableError, match="NOPE"):
        expand("x${NOPE}", ENVIRON)


def test_referenced_variables_lists_names_without_expanding():
    assert referenced_variables("${A}-${B:-x} $C") == ("A", "B")
