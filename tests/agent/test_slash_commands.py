"""The manual agent's answers to typed commands."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.agent.agent import ServerStatus
from holdfast.agent.slash_commands import COMMANDS, HELP, ManualAgent
from holdfast.connect.call import ToolResult, failed_result
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, SessionWarning, Stage
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
ASK = "[must ask: mode ask]"
ODD = {"name": "odd", "inputSchema": {"type": "object", "properties": "none of your business"}}


class FakeTurn:
    """A turn of a session with two servers; it keeps the replies and the calls."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.calls: list[tuple[str, Any]] = []
        self.result = ToolResult(
            result=CallResult(content=[msgspec.Raw(b'{"type":"text","text":"done"}')]),
            outcome=Outcome.COMPLETED,
        )

    async def reply(self, text: str) -> None:
        self.replies.append(text)

    async def think(self, text: str) -> None: ...

    async def plan(self, entries: Sequence[JsonObject]) -> None: ...

    def report_usage(self, usage: JsonObject) -> None: ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, arguments))
        return self.result

    async def tools(self) -> tuple[CatalogTool, ...]:
        wiki = ServerSpec(name="wiki", transport=Stdio(command="x"), source=Source.USER)
        tools = (msgspec.json.decode(json.dumps(tool), type=Tool) for tool in (EDIT, LIST, ODD))
        return build_catalog([(wiki, tools)]).tools

    def describe_access(self, tool: CatalogTool) -> str:
        return "must ask: mode ask"

    def server_status(self) -> ServerStatus:
        return ServerStatus(
            available=("wiki",),
            starting=("slow",),
            refusals=(Refusal(server="gone", stage=Stage.CONNECT, reason="It did not start."),),
            warnings=(SessionWarning(server="wiki", stage=Stage.CONNECT, text="It hides something."),),
            awaiting_approval={"wiki": ("delete",)},
        )


async def run(*texts: str, turn: FakeTurn | None = None) -> list[str]:
    turn = turn or FakeTurn()
    await ManualAgent().run_turn([{"type": "text", "text": text} for text in texts], turn)
    return turn.replies


async def test_plain_text_is_answered_with_the_help_once_however_many_lines():
    assert await run("Hello,\nhow are\nyou?", "And you?") == [HELP]
    assert await run("") == [HELP]
    assert await run("Please:\n/why slow\nThank you.") == ["slow was not refused.\n", HELP]


async def test_unknown_command_is_named():
    assert await run("/tool\n/help") == ["There is no command /tool. /help lists the commands.\n", HELP]


async def test_json_over_several_lines_is_one_call():
    turn = FakeTurn()
    answers = await run('/call wiki.edit {\n  "page": "x",\n  "lines": [\n1\n]}\n/call wiki.list', turn=turn)

    assert turn.calls == [("wiki.edit", {"page": "x", "lines": [1]}), ("wiki.list", {})]
    assert answers == ["wiki.edit:\ndone\n", "wiki.list:\ndone\n"]


async def test_malformed_calls_are_answered_with_what_to_do_and_call_nothing():
    turn = FakeTurn()
    answers = await run('/call wiki.edit {"page": "x"\n/call wiki.edit x.txt\n/call', turn=turn)

    assert turn.calls == []
    assert answers[0] == (
        "The JSON for wiki.edit is incomplete: a bracket is not closed. "
        "Nothing was called; complete the JSON and send it again.\n"
    )
    assert answers[1].startswith("The arguments of wiki.edit are not a JSON object: ")
    assert answers[1].endswith(
        'Nothing was called. Write /call wiki.edit {"key": "value"}; /tools wiki.edit describes its arguments.\n'
    )
    assert answers[2] == "/call needs a tool: /call server.tool {json}. /tools lists the tools.\n"


async def test_empty_result_is_shown_as_empty():
    turn = FakeTurn()
    turn.result = ToolResult(result=CallResult(), outcome=Outcome.COMPLETED)

    assert await run("/call wiki.list", turn=turn) == ["wiki.list:\n(empty)\n"]


@pytest.mark.parametrize(("text", "shown"), [("", ""), ("done", "done\n")])
async def test_content_that_is_not_text_is_named(text: str, shown: str):
    turn = FakeTurn()
    blocks = [{"type": "text", "text": text}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    content = [msgspec.Raw(json.dumps(block).encode()) for block in blocks]
    turn.result = ToolResult(result=CallResult(content=content), outcome=Outcome.COMPLETED)

    assert await run("/call wiki.list", turn=turn) == [f"wiki.list:\n{shown}(image not shown)\n"]


async def test_failure_is_shown_with_its_hint():
    turn = FakeTurn()
    turn.result = failed_result(HoldfastError(codes.UNKNOWN_TOOL, "There is no tool 'wiki.lst'."))

    hint = codes.UNKNOWN_TOOL.hint
    assert await run("/call wiki.lst", turn=turn) == [
        f"wiki.lst failed:\nUNKNOWN_TOOL: There is no tool 'wiki.lst'. {hint}\n"
    ]


async def test_each_invalid_argument_is_shown_on_its_own_line():
    turn = FakeTurn()
    wrong = {"ok": False, "code": "BAD_ARGUMENT", "error": "See 'page', 'x'.", "hint": "Correct them."}
    issues = [{"field": "page", "message": "It is required."}, {"field": "x", "message": "No such."}, 5]
    data = msgspec.Raw(json.dumps({**wrong, "details": {"issues": issues}}).encode())
    turn.result = ToolResult(result=CallResult(structured_content=data), outcome=Outcome.FAILED)

    assert await run("/call wiki.edit", turn=turn) == [
        (
            "wiki.edit failed:\nBAD_ARGUMENT: See 'page', 'x'. Correct them.\n"
            "- page: It is required.\n- x: No such.\n"
        )
    ]


@pytest.mark.parametrize(("tool", "shown"), [("files.edit", False), ("wiki.edit", True)])
async def test_diff_is_left_out_of_the_result_of_the_file_tools_only(tool: str, shown: bool):
    turn = FakeTurn()
    data = msgspec.Raw(b'{"ok":true,"_meta":{},"path":"x","diff":{"path":"x"}}')
    turn.result = ToolResult(result=CallResult(structured_content=data), outcome=Outcome.COMPLETED)

    assert ["diff" in answer for answer in await run(f"/call {tool}", turn=turn)] == [shown]


async def test_tools_are_listed_with_the_first_line_of_their_description():
    assert await run("/tools") == [
        (
            f"- wiki.edit {ASK}  Change a page.\n- wiki.list {ASK}  List all pages.\n- wiki.odd {ASK}\n"
            "Still starting: slow. Their tools are not listed yet.\n"
        )
    ]


async def test_tools_of_one_server_are_listed_with_their_required_arguments():
    assert await run("/tools wiki") == [
        (
            f"- wiki.edit (page, lines) {ASK}  Change a page.\n"
            f"- wiki.list (no arguments required) {ASK}  List all pages.\n"
            f"- wiki.odd (no arguments required) {ASK}\n"
        )
    ]


async def test_tool_is_described_with_every_argument_and_an_example():
    (description,) = await run("/tools wiki.edit")

    assert description == (
        "wiki.edit: Edit a page\n\nChange a page.\n\nOnly one at a time.\n\n"
        "- page (string, required, up to 80 characters): Its name.\n"
        "- lines (array of integer, required)\n"
        '- how ("fast" or "slow", default "fast")\n'
        "- where (string or null, default null)\n"
        "- as (Look)\n"
        "- any (anything)\n"
        "\nPermission: must ask: mode ask\n"
        '\n    /call wiki.edit {"page": "<string>", "lines": "<array of integer>"}\n'
    )
    assert await run("/tools wiki__edit") == [description]
    assert await run("/tools wiki.odd") == [
        "wiki.odd\n\nIt has no arguments.\n\nPermission: must ask: mode ask\n\n    /call wiki.odd {}\n",
    ]


async def test_server_without_tools_and_unknown_server_get_different_answers():
    assert await run("/tools gone\n/tools slow\n/tools other") == [
        "gone has no tools now. /why gone may show the reason.\n",
        "slow is still starting; its tools are not known yet.\n",
        (
            "There is no server or tool 'other' here. /tools lists the tools, /servers the servers.\n"
            "Still starting: slow. Their tools are not listed yet.\n"
        ),
    ]


async def test_why_without_a_name_explains_itself_and_lists_the_servers():
    servers = (
        "- wiki: available\n- slow: starting\n- gone: refused (connect)\n- wiki: 1 tool awaits approval\n"
    )

    assert await run("/why\n/servers") == [
        f"/why needs a server: /why server. The servers are:\n\n{servers}",
        servers,
    ]


async def test_why_shows_refusals_warnings_and_unapproved_tools():
    assert await run("/why gone\n/why wiki\n/why other") == [
        "connect: It did not start.\n",
        (
            "warning: It hides something.\nawaiting approval: delete. "
            "To review and approve them, run: holdfast servers approve\n"
        ),
        "There is no server 'other' here. /servers lists them.\n",
    ]


def test_every_command_is_in_the_help_and_has_a_hint():
    assert [command.name for command in COMMANDS if f"/{command.name}" not in HELP] == []
    assert {command.name: command.hint for command in COMMANDS} == {
        "tools": "[server | server.tool]",
        "call": 'server.tool {"argument": "value"}',
        "servers": "",
        "why": "server",
        "help": "",
    }
