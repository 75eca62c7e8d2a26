"""What a person types, as commands."""

import json
import time

import pytest

from holdfast.agent.typed import Typed, typed
from holdfast.model.json import JsonObject


def text(*texts: str) -> list[JsonObject]:
    return [{"type": "text", "text": words} for words in texts]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("/tools", [Typed(command="/tools")]),
        ("  /why   a server \n\n/help", [Typed(command="/why", rest="a server"), Typed(command="/help")]),
        ("hello\nworld", [Typed(command="", rest="hello"), Typed(command="", rest="world")]),
        ("/call a.b {}\n/call c.d", [Typed(command="/call", rest="a.b {}"), Typed(command="/call", rest="c.d")]),
        ("/call a.b {\n  \"k\": 1\n}\nbye", [Typed(command="/call", rest='a.b {\n"k": 1\n}'), Typed(command="", rest="bye")]),
        ("/call a.b\n{\"k\": [\n1]}", [Typed(command="/call", rest='a.b\n{"k": [\n1]}')]),
        ("/call a.b {\"k\": \"{[\"}\n/tools", [Typed(command="/call", rest='a.b {"k": "{["}'), Typed(command="/tools")]),
        ("/call a.b {\"k\": \"\\\"{\"}\n/tools", [Typed(command="/call", rest='a.b {"k": "\\"{"}'), Typed(command="/tools")]),
        ("/call a.b {\"k\":", [Typed(command="/call", rest='a.b {"k":', open=True)]),
        ("/call a.b {\n/call c.d {}", [Typed(command="/call", rest="a.b {", open=True), Typed(command="/call", rest="c.d {}")]),
        ("/call a.b {}\n{}", [Typed(command="/call", rest="a.b {}"), Typed(command="", rest="{}")]),
        ("/call a.b {\"k\": \"one\u2028line\"}", [Typed(command="/call", rest='a.b {"k": "one\u2028line"}')]),
        ("/callous", [Typed(command="/callous")]),
        ("/", [Typed(command="/")]),
        ("", []),
    ],
)  # fmt: skip
def test_a_prompt_is_read_command_by_command(prompt: str, expected: list[Typed]):
    assert list(typed(text(prompt))) == expected


def test_json_goes_on_from_one_block_of_the_prompt_to_the_next_and_other_blocks_are_left_out():
    image: JsonObject = {"type": "image", "data": "", "mimeType": "image/png"}
    blocks = [*text("/call a.b {"), image, *text('"k": 1}')]

    assert typed(blocks) == (Typed(command="/call", rest='a.b {\n"k": 1}'),)


def test_json_of_very_many_lines_is_read_in_time():
    many = json.dumps({str(number): [number] for number in range(50_000)}, indent=1)
    began = time.monotonic()
    (one,) = typed(text(f"/call a.b {many}"))

    assert (one.open, time.monotonic() - began < 5) == (False, True)
