"""Parsing prompts into commands."""

import json
import time

import pytest

from holdfast.agent.parse_commands import ParsedCommand, parse_commands
from holdfast.model.json import JsonObject


def text(*texts: str) -> list[JsonObject]:
    return [{"type": "text", "text": words} for words in texts]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("/tools", [ParsedCommand(slash_name="/tools")]),
        ("  /why   a server \n\n/help", [ParsedCommand(slash_name="/why", argument="a server"), ParsedCommand(slash_name="/help")]),
        ("hello\nworld", [ParsedCommand(slash_name="", argument="hello"), ParsedCommand(slash_name="", argument="world")]),
        ("/call a.b {}\n/call c.d", [ParsedCommand(slash_name="/call", argument="a.b {}"), ParsedCommand(slash_name="/call", argument="c.d")]),
        ("/call a.b {\n  \"k\": 1\n}\nbye", [ParsedCommand(slash_name="/call", argument='a.b {\n"k": 1\n}'), ParsedCommand(slash_name="", argument="bye")]),
        ("/call a.b\n{\"k\": [\n1]}", [ParsedCommand(slash_name="/call", argument='a.b\n{"k": [\n1]}')]),
        ("/call a.b {\"k\": \"{[\"}\n/tools", [ParsedCommand(slash_name="/call", argument='a.b {"k": "{["}'), ParsedCommand(slash_name="/tools")]),
        ("/call a.b {\"k\": \"\\\"{\"}\n/tools", [ParsedCommand(slash_name="/call", argument='a.b {"k": "\\"{"}'), ParsedCommand(slash_name="/tools")]),
        ("/call a.b {\"k\":", [ParsedCommand(slash_name="/call", argument='a.b {"k":', is_unclosed=True)]),
        ("/call a.b {\n/call c.d {}", [ParsedCommand(slash_name="/call", argument="a.b {", is_unclosed=True), ParsedCommand(slash_name="/call", argument="c.d {}")]),
        ("/call a.b {}\n{}", [ParsedCommand(slash_name="/call", argument="a.b {}"), ParsedCommand(slash_name="", argument="{}")]),
        ("/call a.b {\"k\": \"one\u2028line\"}", [ParsedCommand(slash_name="/call", argument='a.b {"k": "one\u2028line"}')]),
        ("/callous", [ParsedCommand(slash_name="/callous")]),
        ("/", [ParsedCommand(slash_name="/")]),
        ("", []),
    ],
)  # fmt: skip
def test_prompt_is_parsed_into_commands(prompt: str, expected: list[ParsedCommand]):
    assert list(parse_commands(text(prompt))) == expected


def test_json_may_span_text_blocks_and_other_blocks_are_ignored():
    image: JsonObject = {"type": "image", "data": "", "mimeType": "image/png"}
    blocks = [*text("/call a.b {"), image, *text('"k": 1}')]

    assert parse_commands(blocks) == (ParsedCommand(slash_name="/call", argument='a.b {\n"k": 1}'),)


def test_json_of_very_many_lines_is_parsed_in_time():
    many = json.dumps({str(number): [number] for number in range(6_000)}, indent=1)
    began = time.monotonic()
    (command,) = parse_commands(text(f"/call a.b {many}"))

    assert (command.is_unclosed, time.monotonic() - began < 5) == (False, True)
