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
