"""What is answered to what a person types."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.agent.agent import Standing
from holdfast.agent.manual import COMMANDS, HELP, Manual
from holdfast.connect.call import Answer, failed
from holdfast.connect.catalog import Offer, catalog
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Caution, Refusal, Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.wire.mcp.tools import CallResult, Tool

pytestmark = pytest.mark.anyio

EDIT = {
    "name": "edit",
    "title": "Edit a page",
    "description": "Change a page.\n\nOnly one at a time.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "page": {"type": "string", "description": "Its\nname.", "maxLength": 80},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "how": {"enum": ["fast", "slow"], "default": "fast"},
            "where": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "as": {"$ref": "#/$defs/Look"},
            "any": True,
        },
        "required": ["page", "lines"],
    },
}
LIST = {"name": "list", "description": "List all pages.", "inputSchema": {"type": "object"}}
ODD = {"name": "odd", "inputSchema": {"type": "object", "properties": "none of your business"}}


class Fake:
    """A desk with two servers that writes down what is said and called."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.called: list[tuple[str, Any]] = []
        self.answer = Answer(
            result=CallResult(content=[msgspec.Raw(b'{"type":"text","text":"done"}')]),
            outcome=Outcome.COMPLETED,
        )

    async def reply(self, text: str) -> None:
        self.said.append(text)

    async def think(self, text: str) -> None: ...

    async def plan(self, entries: Sequence[JsonObject]) -> None: ...

    def used(self, usage: JsonObject) -> None: ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        self.called.append((name, arguments))
        return self.answer

    async def tools(self) -> tuple[Offer, ...]:
        wiki = ServerSpec(name="wiki", transport=Stdio(command="x"), source=Source.USER)
        tools = (msgspec.json.decode(json.dumps(tool), type=Tool) for tool in (EDIT, LIST, ODD))
        return catalog([(wiki, tools)]).offers

    def standing(self) -> Standing:
        return Standing(
            up=("wiki",),
            starting=("slow",),
            refusals=(Refusal(server="gone", stage=Stage.CONNECT, reason="It did not start."),),
            cautions=(Caution(server="wiki", stage=Stage.CONNECT, text="It hides something."),),
            held_back={"wiki": ("delete",)},
        )


async def said(*texts: str, desk: Fake | None = None) -> list[str]:
    desk = desk or Fake()
    await Manual().turn([{"type": "text", "text": text} for text in texts], desk)
    return desk.said


async def test_plain_words_are_answered_with_the_help_once_however_many_lines():
    assert await said("Hello,\nhow are\nyou?", "And you?") == [HELP]
    assert await said("") == [HELP]
    assert await said("Please:\n/why slow\nThank you.") == ["slow was not refused.\n", HELP]


async def test_a_command_that_there_is_not_is_named():
    assert await said("/tool\n/help") == ["There is no command /tool. /help says what can be typed.\n", HELP]


async def test_json_over_several_lines_is_one_call():
    desk = Fake()
    answers = await said('/call wiki.edit {\n  "page": "x",\n  "lines": [\n1\n]}\n/call wiki.list', desk=desk)

    assert desk.called == [("wiki.edit", {"page": "x", "lines": [1]}), ("wiki.list", {})]
    assert answers == ["wiki.edit:\ndone\n", "wiki.list:\ndone\n"]


async def test_calls_that_cannot_be_read_say_what_to_do_and_call_nothing():
    desk = Fake()
    answers = await said('/call wiki.edit {"page": "x"\n/call wiki.edit x.txt\n/call', desk=desk)

    assert desk.called == []
    assert answers[0] == (
        "The JSON for wiki.edit is not closed: a bracket is open where it ends. "
        "Nothing was called; close it and send it again.\n"
    )
    assert answers[1].startswith("The arguments of wiki.edit are no JSON object: ")
    assert answers[1].endswith(
        'Nothing was called. Write /call wiki.edit {"key": "value"}; /tools wiki.edit says what it takes.\n'
    )
    assert answers[2] == "Say which tool: /call server.tool {json}. /tools lists them.\n"


async def test_an_answer_without_a_word_is_said_to_be_empty():
    desk = Fake()
    desk.answer = Answer(result=CallResult(), outcome=Outcome.COMPLETED)

    assert await said("/call wiki.list", desk=desk) == ["wiki.list:\n(empty)\n"]


async def test_a_failure_says_what_to_do():
    desk = Fake()
    desk.answer = failed(HoldfastError(codes.UNKNOWN_TOOL, "There is no tool 'wiki.lst'."))

    assert await said("/call wiki.lst", desk=desk) == [
        (
            "wiki.lst failed:\nUNKNOWN_TOOL: There is no tool 'wiki.lst'. "
            "List the tools and use a name as it is printed there.\n"
        )
    ]


async def test_arguments_that_do_not_fit_are_named_one_by_one():
    desk = Fake()
    wrong = {"ok": False, "code": "BAD_ARGUMENT", "error": "See 'page', 'x'.", "hint": "Correct them."}
    issues = [{"field": "page", "message": "It is required."}, {"field": "x", "message": "No such."}, 5]
    data = msgspec.Raw(json.dumps({**wrong, "details": {"issues": issues}}).encode())
    desk.answer = Answer(result=CallResult(structured_content=data), outcome=Outcome.FAILED)

    assert await said("/call wiki.edit", desk=desk) == [
        (
            "wiki.edit failed:\nBAD_ARGUMENT: See 'page', 'x'. Correct them.\n"
            "- page: It is required.\n- x: No such.\n"
        )
    ]


@pytest.mark.parametrize(("tool", "shown"), [("files.edit", False), ("wiki.edit", True)])
async def test_only_of_our_file_tools_the_diff_is_shown_elsewhere(tool: str, shown: bool):
    desk = Fake()
    data = msgspec.Raw(b'{"ok":true,"_meta":{},"path":"x","diff":{"path":"x"}}')
    desk.answer = Answer(result=CallResult(structured_content=data), outcome=Outcome.COMPLETED)

    assert ["diff" in answer for answer in await said(f"/call {tool}", desk=desk)] == [shown]


async def test_tools_are_listed_each_with_its_first_line():
    assert await said("/tools") == [
        (
            "- wiki.edit  Change a page.\n- wiki.list  List all pages.\n- wiki.odd\n"
            "Still starting, their tools come later: slow.\n"
        )
    ]


async def test_the_tools_of_a_server_are_listed_with_what_they_need():
    assert await said("/tools wiki") == [
        (
            "- wiki.edit (page, lines)  Change a page.\n"
            "- wiki.list (needs nothing)  List all pages.\n"
            "- wiki.odd (needs nothing)\n"
        )
    ]


async def test_a_tool_is_described_with_every_argument_and_an_example():
    (told,) = await said("/tools wiki.edit")

    assert told == (
        "wiki.edit: Edit a page\n\nChange a page.\n\nOnly one at a time.\n\n"
        "- page (string, required, up to 80 characters): Its name.\n"
        "- lines (array of integer, required)\n"
        '- how ("fast" or "slow", otherwise "fast")\n'
        "- where (string or null, otherwise null)\n"
        "- as (Look)\n"
        "- any (anything)\n"
        '\n    /call wiki.edit {"page": "<string>", "lines": "<array of integer>"}\n'
    )
    assert await said("/tools wiki__edit") == [told]
    assert await said("/tools wiki.odd") == [
        "wiki.odd\n\nIt names no arguments.\n\n    /call wiki.odd {}\n",
    ]


async def test_a_server_without_tools_and_one_that_there_is_not_are_told_apart():
    assert await said("/tools gone\n/tools slow\n/tools nobody") == [
        "gone has no tools now. /why gone may say why.\n",
        "slow is still starting; its tools come later.\n",
        (
            "There is no server or tool 'nobody' here. /tools lists the tools, /servers the servers.\n"
            "Still starting, their tools come later: slow.\n"
        ),
    ]


async def test_why_without_a_name_says_how_to_use_it_and_lists_the_servers():
    servers = "- wiki: up\n- slow: starting\n- gone: refused (connect)\n- wiki: 1 tool waits for approval\n"

    assert await said("/why\n/servers") == [
        f"Say which server: /why server. There are:\n\n{servers}",
        servers,
    ]


async def test_why_tells_all_that_is_known_of_a_server():
    assert await said("/why gone\n/why wiki\n/why nobody") == [
        "connect: It did not start.\n",
        (
            "beware: It hides something.\nheld back until approved: delete. "
            "To look at them and approve: holdfast servers approve\n"
        ),
        "There is no server 'nobody' here. /servers lists them.\n",
    ]


def test_every_command_stands_in_the_help_and_says_what_follows_it():
    assert [command.name for command in COMMANDS if f"/{command.name}" not in HELP] == []
    assert {command.name: command.hint for command in COMMANDS} == {
        "tools": "[server | server.tool]",
        "call": 'server.tool {"argument": "value"}',
        "servers": "",
        "why": "server",
        "help": "",
    }
