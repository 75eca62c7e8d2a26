"""The fields of a form, as a terminal asks for them."""

from typing import Any

import pytest

from holdfast.cli.chat.form import fill_in

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("field", "label", "answers", "said", "value"),
    [
        ({"type": "integer", "maximum": 300}, "whole number, at most 300", ["400", "4"], "at most 300", 4),
        ({"type": "number", "exclusiveMinimum": 0}, "number, more than 0", ["0", "0.5"], "more than 0", 0.5),
        ({"type": "string", "maxLength": 2}, "text, at most 2 characters", ["abc", "a"], "at most 2 ch", "a"),
        (
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "whole number, at least 1",
            ["0", "1"],
            "at least 1",
            1,
        ),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
            "choice, at least 2 items",
            ["a", "a, b"],
            "at least 2 items",
            ["a", "b"],
        ),
    ],
)
async def test_an_answer_outside_of_the_limits_is_asked_for_again(
    field: dict[str, Any], label: str, answers: list[str], said: str, value: object
):
    asked: list[str] = []
    printed: list[str] = []
    remaining = iter(answers)

    async def ask(question: str) -> str | None:
        asked.append(question)
        return next(remaining, None)

    filled = await fill_in({"properties": {"a": field}, "required": ["a"]}, ask, printed.append)

    assert (filled, asked) == ({"a": value}, [f"  a ({label}): "] * 2)
    assert f"    Allowed: {said}" in printed[-1]


@pytest.mark.parametrize(
    ("kind", "refused", "said"),
    [
        ("integer", ("²", "+-5", "9" * 5000), "It must be a whole number."),
        ("number", ("nan", "-inf", "1e999"), "It must be a number."),
        ("array", ("[NaN]", "[Infinity]"), 'It must be JSON, such as ["a", "b"].'),
    ],
)
async def test_a_value_that_json_does_not_have_is_asked_for_again(
    kind: str, refused: tuple[str, ...], said: str
):
    printed: list[str] = []
    remaining = iter((*refused, "[5]" if kind == "array" else "5"))

    async def ask(question: str) -> str | None:
        return next(remaining, None)

    filled = await fill_in({"properties": {"a": {"type": kind}}, "required": ["a"]}, ask, printed.append)

    assert filled == {"a": [5] if kind == "array" else 5}
    assert printed == [f"    {said}"] * len(refused)
