"""The answers of `SlashCommandAgent` to typed commands."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.agent.agent import ServerStatus
from holdfast.agent.command_list import HELP
from holdfast.agent.long_results import LongResults
from holdfast.agent.model.budget import UNLIMITED_BUDGET
from holdfast.agent.model.turn_limits import TurnTotal
from holdfast.agent.slash_commands import SlashCommandAgent
from holdfast.connect.call import ToolResult, failed_result
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.model import codes
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.call_arguments import Arguments
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import MAIN_AGENT_ORIGIN, HistoryCompacted, ModelResponded, Outcome
from holdfast.model.ids import SessionId
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, SessionWarning, Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.store.types import StoredEvent
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
AWAITS_APPROVAL = "- wiki.delete [awaits approval: holdfast servers approve wiki]\n"
ODD = {"name": "odd", "inputSchema": {"type": "object", "properties": "none of your business"}}


class FakeTurn:
    """A turn of a session with two servers; it keeps the replies and the calls."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.failure = ""
        self.calls: list[tuple[str, Any]] = []
        self.result = ToolResult(
            result=CallResult(content=[msgspec.Raw(b'{"type":"text","text":"done"}')]),
            outcome=Outcome.COMPLETED,
        )

        self.turn_id = "turn_1"
        self.origin = MAIN_AGENT_ORIGIN
        self.sender = ""
        self.budget = UNLIMITED_BUDGET
        self.total = TurnTotal()
        self.definition: AgentDefinition | None = None
        self.context = SessionContext(session_id=SessionId("sess_1"), trust_level=Trust.DIRECT)

    def begin_message(self) -> None: ...

    async def take_messages(self) -> tuple[str, ...]:
        return ()

    async def add_model_event(self, event: ModelResponded | HistoryCompacted) -> None: ...

    async def keep_setting(self, name: str, value: str) -> None: ...

    async def project_instructions(self) -> str:
        return ""

    async def past_events(self) -> AsyncIterator[StoredEvent]:
        for event in ():
            yield event

    async def reply(self, text: str) -> None:
        self.replies.append(text)

    async def flush(self) -> None: ...

    async def think(self, text: str) -> None: ...

    async def plan(self, entries: Sequence[JsonObject]) -> None: ...

    def report_usage(self, usage: JsonObject) -> None: ...

    def report_failure(self, error: HoldfastError) -> None:
        self.failure = error.code.name

    async def reject_call(
        self, server: str, tool: str, arguments: Arguments, *, call_id: str, error: HoldfastError
    ) -> ToolResult:
        return failed_result(error)

    async def call(self, name: str, arguments: Arguments | None = None, *, call_id: str = "") -> ToolResult:
        self.calls.append((name, arguments))
        return self.result

    async def tools(self) -> tuple[CatalogTool, ...]:
        wiki = ServerSpec(name="wiki", transport=Stdio(command="x"), source=Source.USER)
        tools = (msgspec.json.decode(json.dumps(tool), type=Tool) for tool in (EDIT, LIST, ODD))
        return build_catalog([(wiki, tools)]).tools

    def describe_access(self, tool: CatalogTool) -> str:
        return "must ask: mode ask"

    async def list_features(self, server: str, kind: str) -> list[JsonObject]:
        if kind == "resourceTemplates":
            return [{"uriTemplate": "notes://{title}", "name": "note"}]
        if kind == "prompts":
            return [{"name": "greet", "arguments": [{"name": "name", "required": True}, {"name": "style"}]}]
        return [{"uri": "notes://one", "name": "one", "description": "The first note."}]

    async def request_feature(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject:
        if method == "prompts/get":
            if params["name"] == "greet" and "name" not in params["arguments"]:
                raise HoldfastError(codes.PEER_ERROR, "The server answered with an error.")
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {params}"}}]}
        return {"contents": [{"uri": "notes://one", "text": "This is note one."}]}

    async def read_log(self, server: str) -> str:
        return ""

    async def was_added_later(self, server: str) -> bool:
        return server == "kitchen"

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
    await SlashCommandAgent().run_turn([{"type": "text", "text": text} for text in texts], turn)
    return turn.replies


async def test_plain_text_is_answered_with_the_help_once_however_many_lines():
    assert await run("Hello,\nhow are\nyou?", "And you?") == [HELP]
    assert await run("") == [HELP]
    assert await run("Please:\n/why slow\nThank you.") == ["slow was not refused.\n", HELP]


async def test_text_after_a_command_is_not_sent_to_the_model():
    prompt: list[JsonObject] = [{"type": "text", "text": "/why slow\nWhat does it do?"}]
    with_model, without = FakeTurn(), FakeTurn()

    await SlashCommandAgent(has_model=lambda: True).run_turn(prompt, with_model)
    await SlashCommandAgent().run_turn(prompt, without)

    advice = "Text after a command is not sent to the model. Send it as a prompt of its own.\n"
    assert (with_model.replies[1:], without.replies[1:]) == ([advice], [HELP])


async def test_unknown_command_is_named():
    assert await run("/tool\n/Tools\n/nope\n/help") == [
        "There is no command /tool. Did you mean /tools? /help lists the commands.\n",
        "There is no command /Tools. Did you mean /tools? /help lists the commands.\n",
        "There is no command /nope. /help lists the commands.\n",
        HELP,
    ]


async def test_json_over_several_lines_is_one_call():
    turn = FakeTurn()
    answers = await run('/call wiki.edit {\n  "page": "x",\n  "lines": [\n1\n]}\n/call wiki.list', turn=turn)

    assert turn.calls == [("wiki.edit", {"page": "x", "lines": [1]}), ("wiki.list", {})]
    assert answers == ["wiki.edit:\ndone\n", "wiki.list:\ndone\n"]


async def test_malformed_calls_are_answered_with_what_to_do_and_call_nothing():
    turn = FakeTurn()
    answers = await run(
        '/call wiki.edit {"page": "x"\n/call wiki.edit x.txt\n/call\n/call wiki.edit page=x lines=[1] n=3',
        turn=turn,
    )

    assert turn.calls == []
    assert answers[0] == (
        "The JSON for wiki.edit is incomplete: a `{` is not closed. "
        "Nothing was called; complete the JSON and send it again.\n"
    )
    wrong = "The arguments of wiki.edit are not a JSON object. Nothing was called. Write /call wiki.edit "
    described = "; /tools wiki.edit describes its arguments.\n"
    assert answers[1] == wrong + '{"key": "value"}' + described
    assert answers[3] == wrong + '{"page": "x", "lines": [1], "n": 3}' + described
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [('{"rows":[1]}', '{\n    "rows": [\n        1\n    ]\n}'), ("{one row", "{one row"), ("[2]", "[2]")],
    ids=["the same data", "not JSON", "other data"],
)
async def test_text_that_repeats_the_data_is_indented(text: str, shown: str):
    turn = FakeTurn()
    content = [msgspec.Raw(json.dumps({"type": "text", "text": text}).encode())]
    turn.result = ToolResult(
        result=CallResult(content=content, structured_content=msgspec.Raw(b'{"rows": [1]}')),
        outcome=Outcome.COMPLETED,
    )

    assert await run("/call wiki.list", turn=turn) == [f"wiki.list:\n{shown}\n"]


@pytest.mark.parametrize(
    ("data", "shown"), [({"rows": 3}, '{\n    "rows": 3\n}\n# Report\n'), ({}, "# Report\n")]
)
async def test_texts_beside_the_data_of_an_envelope_are_shown(data: dict[str, int], shown: str):
    turn = FakeTurn()
    envelope = json.dumps({**data, "ok": True, "_meta": {}}).encode()
    content = [
        msgspec.Raw(json.dumps({"type": "text", "text": text}).encode())
        for text in (envelope.decode(), "# Report")
    ]
    turn.result = ToolResult(
        result=CallResult(content=content, structured_content=msgspec.Raw(envelope)),
        outcome=Outcome.COMPLETED,
    )

    assert await run("/call wiki.list", turn=turn) == [f"wiki.list:\n{shown}"]


@pytest.mark.parametrize(
    ("message", "separator"),
    [
        ("There is no tool 'wiki.lst'.", " "),
        ("To see all, run: holdfast tools", "\n"),
        ("It wrote to stderr:\n| starting...", "\n"),
    ],
)
async def test_failure_is_shown_with_its_hint_as_a_sentence_of_its_own(message: str, separator: str):
    turn = FakeTurn()
    turn.result = failed_result(HoldfastError(codes.UNKNOWN_TOOL, message))

    assert await run("/call wiki.lst", turn=turn) == [
        f"wiki.lst failed:\nUNKNOWN_TOOL: {message}{separator}{codes.UNKNOWN_TOOL.hint}\n"
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


async def test_each_detail_of_a_failure_is_shown_on_its_own_line():
    turn = FakeTurn()
    details = {
        "expected": ["the title 'A'", "no 'B'"],
        "actual": "<page 1>\nC\n</page 1>",
        "line": 3,
        "why": "D",
    }
    failure = {"ok": False, "code": "NOT_YET", "error": "Not true.", "hint": "Compare.", "details": details}
    data = msgspec.Raw(json.dumps(failure).encode())
    turn.result = ToolResult(result=CallResult(structured_content=data), outcome=Outcome.FAILED)

    assert await run("/call stage.expect", turn=turn) == [
        (
            "stage.expect failed:\nNOT_YET: Not true. Compare.\n- expected: the title 'A', no 'B'\n"
            "- actual:\n<page 1>\nC\n</page 1>\n- line: 3\n- why: D\n"
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
            f"- wiki.edit {ASK}  Change a page.\n- wiki.list {ASK}  List all pages.\n- wiki.odd {ASK}\n{AWAITS_APPROVAL}"
            "Still starting: slow. Their tools are not listed yet.\n"
        )
    ]


async def test_tools_of_one_server_are_listed_with_their_required_arguments():
    assert await run("/tools wiki") == [
        (
            f"- wiki.edit (page, lines) {ASK}  Change a page.\n"
            f"- wiki.list (no arguments required) {ASK}  List all pages.\n"
            f"- wiki.odd (no arguments required) {ASK}\n{AWAITS_APPROVAL}"
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
        '\n    /call wiki.edit {"page": "<string>", "lines": ["<integer>"]}\n'
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
    servers = "- wiki: available\n- slow: starting\n- gone: refused; /why gone shows the reason\n- wiki: 1 tool awaits approval\n"

    assert await run("/why\n/servers") == [
        f"/why needs a server: /why server. The servers are:\n\n{servers}",
        servers,
    ]


async def test_why_shows_refusals_warnings_and_unapproved_tools():
    assert await run("/why gone\n/why wiki\n/why other") == [
        "connect: It did not start.\n",
        (
            "warning: It hides something.\nawaiting approval: delete. "
            "To review and approve them, run: holdfast servers approve wiki\n"
        ),
        "There is no server 'other' here. /servers lists the servers.\n",
    ]


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        ("/tools wikki", "'wiki'"),
        ("/tools wiki.edti", "'wiki.edit'"),
        ("/why wikki", "'wiki'"),
        ("/why gonne", "'gone'"),
        ("/resources wikki", "'wiki'"),
        ("/prompts wikki", "'wiki'"),
    ],
)
async def test_unknown_name_gets_a_suggestion(command: str, suggestion: str):
    (answer,) = await run(command)
    assert f" here. Did you mean {suggestion}? /" in answer


async def test_why_there_is_no_log_ends_with_its_command_on_a_line_of_its_own():
    class Refused(FakeTurn):
        async def read_log(self, server: str) -> str:
            raise HoldfastError(codes.SERVER_REFUSED, "To review it, run: holdfast servers approve")

    assert await run("/logs gone", turn=Refused()) == [
        "To review it, run: holdfast servers approve\n/servers lists the servers.\n"
    ]


async def test_result_of_a_tool_called_by_its_model_name_is_shown_with_its_own_name():
    assert await run("/call wiki__list", "/call wiki.list") == ["wiki.list:\ndone\n"] * 2


class SpacedTurn(FakeTurn):
    """A turn of a session with a server whose name contains a space."""

    async def tools(self) -> tuple[CatalogTool, ...]:
        wiki = ServerSpec(name="my wiki", transport=Stdio(command="x"), source=Source.USER)
        tools = (msgspec.json.decode(json.dumps(tool), type=Tool) for tool in (EDIT, LIST))
        return build_catalog([(wiki, tools)]).tools


async def test_tool_of_a_server_whose_name_contains_a_space_is_called_as_it_is_listed():
    turn = SpacedTurn()
    answers = await run("/call my wiki.list", '/call my wiki.edit {"page": "a b"}', turn=turn)
    (wrong,) = await run("/call my wiki.edit x", turn=SpacedTurn())

    assert turn.calls == [("my wiki.list", {}), ("my wiki.edit", {"page": "a b"})]
    assert answers == ["my wiki.list:\ndone\n", "my wiki.edit:\ndone\n"]
    assert wrong.startswith("The arguments of my wiki.edit are not a JSON object.")


async def test_text_of_several_lines_that_a_tool_returned_is_shown_as_lines():
    turn = FakeTurn()
    data = msgspec.Raw(b'{"ok":true,"_meta":{},"result":"one\\ntwo"}')
    turn.result = ToolResult(result=CallResult(structured_content=data), outcome=Outcome.COMPLETED)

    assert await run("/call wiki.list", turn=turn) == ["wiki.list:\none\ntwo\n"]


async def test_long_result_is_shown_in_parts():
    turn, agent = FakeTurn(), SlashCommandAgent()
    text = "".join(f"line {number}\\n" for number in range(900))
    turn.result = ToolResult(
        result=CallResult(content=[msgspec.Raw(f'{{"type":"text","text":"{text}"}}'.encode())]),
        outcome=Outcome.COMPLETED,
    )

    for prompt in ("/call wiki.list", "/more", "/more", "/more"):
        await agent.run_turn([{"type": "text", "text": prompt}], turn)

    first, second, third, last = turn.replies
    assert first.endswith("more characters: /more shows the next part)\n")
    shown = [line for part in (first, second, third) for line in part.splitlines() if line.startswith("line")]
    assert shown == [f"line {number}" for number in range(900)]
    assert last == "There is no more to show.\n"


def test_rest_of_several_long_results_is_limited_and_the_reply_says_so():
    results = LongResults()

    replies = [results.first_part("sess_1", "x" * 600_000) for _ in range(2)]

    assert [reply.rpartition("x\n")[2] for reply in replies] == [
        "(596000 more characters: /more shows the next part)\n",
        "(1048576 of 1192000 more characters: /more shows the next part)\n",
    ]


async def test_resources_and_prompts_are_listed_and_shown():
    assert await run("/resources", "/resources wiki notes://one", '/prompts wiki greet {"name": "Ann"}') == [
        "- wiki notes://one  The first note.\n- wiki notes://{title}\n",
        "This is note one.\n",
        "user: Greet {'name': 'greet', 'arguments': {'name': 'Ann'}}\n",
    ]
    assert await run("/prompts wiki", "/prompts wiki greet") == [
        "- wiki greet (name, style?)\n",
        'The server answered with an error.\nIt needs name. Write /prompts wiki greet {"name": "…"}\n',
    ]


@pytest.mark.parametrize("given", ["Ann", '["Ann"]', "3", "null"])
async def test_arguments_of_a_prompt_must_be_a_json_object(given: str):
    assert await run(f"/prompts wiki greet {given}") == [
        'The arguments of greet are not a JSON object. Write /prompts wiki greet {"key": "value"}.\n'
    ]


@pytest.mark.parametrize(
    ("tool", "data", "shown"),
    [
        (
            "list",
            {
                "folder": ".",
                "entries": [{"name": "src", "kind": "folder"}, {"name": "a.py", "kind": "file", "size": 3}],
            },
            ".:\nsrc/\na.py  (3 bytes)",
        ),
        (
            "find",
            {"found": [{"path": "a.py", "line": 2, "text": " TODO"}], "checked_files": 1},
            "a.py:2: TODO",
        ),
        ("find", {"found": [], "checked_files": 1}, "Nothing was found."),
        ("write", {"path": "a.py", "created": True, "diff": "+x"}, "a.py was created."),
        ("edit", {"path": "a.py", "replaced": 2, "diff": "+x"}, "a.py was changed: replaced 2 times."),
    ],
)
async def test_results_of_the_file_tools_are_shown_as_text(tool: str, data: dict[str, Any], shown: str):
    turn = FakeTurn()
    content = msgspec.Raw(json.dumps({"ok": True, **data, "_meta": {}}).encode())
    turn.result = ToolResult(result=CallResult(structured_content=content), outcome=Outcome.COMPLETED)

    assert await run(f"/call files.{tool}", turn=turn) == [f"files.{tool}:\n{shown}\n"]


async def test_a_server_that_was_added_after_the_session_began_is_said_to_be_new():
    assert await run("/why kitchen") == [
        "kitchen was added after this session began. To use it, open a new session.\n"
    ]
