"""Parsing prompts into commands."""

import json
import time

import pytest

from holdfast.agent.commands import TypedCommand, parse_commands
from holdfast.model.json import JsonObject


def text(*texts: str) -> list[JsonObject]:
    return [{"type": "text", "text": words} for words in texts]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("/tools", [TypedCommand(name="/tools")]),
        ("  /why   a server \n\n/help", [TypedCommand(name="/why", argument="a server"), TypedCommand(name="/help")]),
        ("hello\nworld", [TypedCommand(name="", argument="hello"), TypedCommand(name="", argument="world")]),
        ("/call a.b {}\n/call c.d", [TypedCommand(name="/call", argument="a.b {}"), TypedCommand(name="/call", argument="c.d")]),
        ("/call a.b {\n  \"k\": 1\n}\nbye", [TypedCommand(name="/call", argument='a.b {\n"k": 1\n}'), TypedCommand(name="", argument="bye")]),
        ("/call a.b\n{\"k\": [\n1]}", [TypedCommand(name="/call", argument='a.b\n{"k": [\n1]}')]),
        ("/call a.b {\"k\": \"{[\"}\n/tools", [TypedCommand(name="/call", argument='a.b {"k": "{["}'), TypedCommand(name="/tools")]),
        ("/call a.b {\"k\": \"\\\"{\"}\n/tools", [TypedCommand(name="/call", argument='a.b {"k": "\\"{"}'), TypedCommand(name="/tools")]),
        ("/call a.b {\"k\":", [TypedCommand(name="/call", argument='a.b {"k":', is_unclosed=True)]),
        ("/call a.b {\n/call c.d {}", [TypedCommand(name="/call", argument="a.b {", is_unclosed=True), TypedCommand(name="/call", argument="c.d {}")]),
        ("/call a.b {}\n{}", [TypedCommand(name="/call", argument="a.b {}"), TypedCommand(name="", argument="{}")]),
        ("/call a.b {\"k\": \"one\u2028line\"}", [TypedCommand(name="/call", argument='a.b {"k": "one\u2028line"}')]),
        ("/callous", [TypedCommand(name="/callous")]),
        ("/", [TypedCommand(name="/")]),
        ("", []),
    ],
)  # fmt: skip
def test_prompt_is_parsed_into_commands(prompt: str, expected: list[TypedCommand]):
    assert list(parse_commands(text(prompt))) == expected


def test_json_may_span_text_blocks_and_other_blocks_are_ignored():
    image: JsonObject = {"type": "image", "data": "", "mimeType": "image/png"}
    blocks = [*text("/call a.b {"), image, *text('"k": 1}')]

    assert parse_commands(blocks) == (TypedCommand(name="/call", argument='a.b {\n"k": 1}'),)


def test_json_of_very_many_lines_is_parsed_in_time():
    many = json.dumps({str(number): [number] for number in range(50_000)}, indent=1)
    began = time.monotonic()
    (command,) = parse_commands(text(f"/call a.b {many}"))

    assert (command.is_unclosed, time.monotonic() - began < 5) == (False, True)
