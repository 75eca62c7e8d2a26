"""Values of a wrong type that an application gives to a session: each is an error that says what to give."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import MCPError, types
from pydantic import BaseModel
from pydantic_ai import ModelRetry

from holdfast import Agent, HoldfastError, Host, JsonObject, Session, TurnContext, events
from holdfast import sync as sync_holdfast
from holdfast.adapters import client_session, langchain_tools, openai_agents_tools, pydantic_ai_toolset
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.testing import FakeServer, host_of
from holdfast.toolkit import Image, Toolbox

pytestmark = pytest.mark.anyio


@dataclass
class Size:
    width: float


Use = Callable[[Session, Any], Awaitable[object]]
PROMPT = "A prompt must be a string, or a list of content blocks"
MISTAKES: dict[str, tuple[Use, object, str]] = {
    "call": (lambda s, v: s.call(v), None, "`name` must be the name of a tool as text"),
    "NaN": (lambda s, v: s.call("fake.write", {"a": [v]}), float("nan"), "they contain a NaN or an infinity"),
    "infinity": (
        lambda s, v: s.call("fake.write", v),
        Size(float("inf")),
        "they contain a NaN or an infinity",
    ),
    "prompt: number": (lambda s, v: s.prompt(v), 3, PROMPT),
    "prompt: words": (lambda s, v: s.prompt(v), ["x"], "block 0 is a value of the type str"),
    "prompt: block": (lambda s, v: s.prompt(v), {"type": "text", "text": "x"}, PROMPT),
    "prompt: empty": (lambda s, v: s.prompt(v), [], "the list is empty"),
    "prompt: no words": (lambda s, v: s.prompt(v), " \n", "the text is empty"),
    "prompt: empty block": (lambda s, v: s.prompt(v), [{"type": "text", "text": ""}], "the text is empty"),
    "prompt: image": (lambda s, v: s.prompt(v), [{"type": "image"}], 'of the type "image" has no "data"'),
    "prompt: no type": (lambda s, v: s.prompt(v), [{"text": "x"}], 'block 0 has no "type"'),
    "prompt: no text": (lambda s, v: s.prompt(v), [{"type": "text"}], 'has no "text"'),
    "uri": (lambda s, v: s.read_resource("fake", v), 3, "`uri` must be a string"),
    "resources": (lambda s, v: s.list_resources(v), 3, "`server` must be a string"),
    "get_prompt": (lambda s, v: s.get_prompt("fake", v), 3, "`name` must be a string"),
    "arguments": (lambda s, v: s.get_prompt("fake", "p", v), [1], "`arguments` must be a dictionary"),
    "server_info": (lambda s, v: s.server_info(v), 3, "`server` must be a string"),
}


async def test_a_value_of_a_wrong_type_is_refused_with_what_to_give():
    said: dict[str, bool] = {}
    async with host_of(FakeServer({"write": "done"})) as host, host.session(keep=False) as session:
        for name, (use, value, expected) in MISTAKES.items():
            with pytest.raises(HoldfastError) as raised:
                await use(session, value)
            said[name] = raised.value.code == "BAD_ARGUMENT" and expected in raised.value.message

    assert said == dict.fromkeys(MISTAKES, True)


@pytest.mark.parametrize("keep", [True, False])
async def test_events_after_a_negative_number_are_all_events(keep: bool):
    async with host_of(FakeServer({"write": "done"})) as host:
        async with host.session(keep=keep) as session:
            await session.call("fake.write")
        found = [stored.seq async for stored in session.subscribe(after=-1)]
        whole = [stored.seq async for stored in session.subscribe()]
        with pytest.raises(HoldfastError, match="`after` must be the number of an event"):
            session.subscribe(cast("int", "x"))

    assert found == whole == [*range(1, len(whole) + 1)]
    assert whole


@pytest.mark.parametrize("answer", [None, "yes", 1])
async def test_a_wrong_answer_to_a_permission_question_is_a_refused_call(answer: object):
    def ask(question: object) -> Any:
        return answer

    async with host_of(FakeServer({"write": "done"})) as host, host.session(ask=ask, keep=False) as session:
        result = await session.call("fake.write")

    assert (result.ok, result.code) == (False, "NOT_PERMITTED")
    assert "`ask` must return True, False or one of" in result.message


async def test_an_error_of_the_application_in_a_permission_question_is_a_refused_call():
    def ask(question: object) -> bool:
        raise HoldfastError(codes.BAD_ARGUMENT, "not today")

    async with host_of(FakeServer({"write": "done"})) as host, host.session(ask=ask, keep=False) as session:
        result = await session.call("fake.write")

    assert (result.code, "not today" in result.message) == ("NOT_PERMITTED", True)


class Number(BaseModel):
    number: int


@dataclass
class Plain:
    number: int


class Caller(Agent):
    """Calls a tool with each kind of arguments."""

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> events.StopReason:
        for arguments in (None, {"number": 1}, Number(number=2), Plain(number=3)):
            await (turn.call("fake.write") if arguments is None else turn.call("fake.write", arguments))
        return events.StopReason.END_TURN


async def test_a_turn_takes_the_same_arguments_as_a_session():
    fake = FakeServer({"write": "done"})
    async with host_of(fake, agent=Caller()) as host, host.session(keep=False) as session:
        (await session.prompt("go")).raise_for_error()

    assert [call.arguments for call in fake.calls] == [{}, {"number": 1}, {"number": 2}, {"number": 3}]


class Sync(Agent):
    """Its `run_turn` is not async."""

    def run_turn(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, blocks: Sequence[JsonObject], turn: TurnContext
    ) -> events.StopReason:
        return events.StopReason.END_TURN


class Nothing(Agent):
    """Has no `run_turn`."""


async def test_an_agent_that_cannot_answer_says_why():
    async with host_of(agent=cast("Agent", Sync())) as host, host.session(keep=False) as session:
        result = await session.prompt("go")

    assert (result.code, "must be async: `async def run_turn" in result.message) == ("BAD_ARGUMENT", True)
    with pytest.raises(TypeError, match="run_turn"):
        Nothing()  # pyright: ignore[reportAbstractUsage]


async def test_adapters_refuse_what_is_not_an_open_async_session(tmp_path: Path):
    environ = {"HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    (tmp_path / "config.toml").touch()
    loaded = sync_holdfast.async_host.settings_module.load(tmp_path / "config.toml", environ)
    host = Host(settings=loaded)
    uses: list[Callable[[Any], object]] = [
        pydantic_ai_toolset,
        langchain_tools,
        openai_agents_tools,
        lambda session: client_session(session, "fake"),
    ]

    async def make(use: Callable[[Any], object], session: object) -> None:
        made = use(session)
        if isinstance(made, Awaitable):
            await made

    said: set[str] = set()
    for wrong in (sync_holdfast.Session.__new__(sync_holdfast.Session), host.session(), None):
        for use in uses:
            with pytest.raises(HoldfastError) as raised:
                await make(use, wrong)
            said.add(raised.value.message)

    assert sorted(message[:40] for message in said) == [
        "An adapter needs a session of the async ",
        "The session is not open. Write: async wi",
        "`session` must be an open session of `ho",
    ]


async def test_a_host_refuses_wrong_options_at_once(tmp_path: Path):
    wrong: Any = {"user_id": "ann"}
    async with host_of() as host:
        for use in (host.open(wrong), host.reopen("sess_0123456789abcdef", wrong)):
            with pytest.raises(HoldfastError, match=r"`options` must be OpenOptions\(…\)"):
                await use
        with pytest.raises(HoldfastError, match="`session_id` must be a string"):
            await host.find_session(wrong)
    with pytest.raises(HoldfastError, match="`settings` must be what"):
        Host(settings=wrong)
    with pytest.raises(HoldfastError, match=r"`agent` must be a holdfast\.Agent"):
        Host(settings=host.settings, agent=wrong)
    for name in ("store", "connect_options", "tracer_provider"):
        with pytest.raises(HoldfastError, match=f"`{name}` must be .* not a value of the type dict"):
            Host(settings=host.settings, **{name: wrong})


def test_a_code_is_equal_to_its_name():
    code = Code(name="A_B", hint="", http_status=400)

    assert code == "A_B"
    assert (code == "A", f"{code}", code in {"A_B"}) == (False, "A_B", True)


async def test_a_client_session_completes_lists_templates_and_names_what_it_lacks():
    box = Toolbox("box", version="3.1", instructions="Read the notes.")

    @box.tool(operation="query")
    def count() -> int:  # pyright: ignore[reportUnusedFunction]
        """Count the notes."""
        return 1

    @box.resource("notes://{name}")
    def note(name: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """A note."""
        return name

    @box.completion("notes://{name}", "name")
    def complete(value: str) -> list[str]:  # pyright: ignore[reportUnusedFunction]
        return [f"{value}1"]

    async with host_of(box) as host, host.session(keep=False) as session:
        mcp = client_session(session, "box")
        before = mcp.server_info
        initialized = await mcp.initialize()
        (tool,) = (await mcp.list_tools()).tools
        templates = await mcp.list_resource_templates()
        reference = types.ResourceTemplateReference(type="ref/resource", uri="notes://{name}")
        completed = await mcp.complete(reference, {"name": "name", "value": "a"})
        failures: list[MCPError] = []
        for request in (
            mcp.read_resource("other://a"),
            mcp.get_prompt("none"),
            mcp.complete(types.PromptReference(type="ref/prompt", name="none"), {"name": "a", "value": ""}),
        ):
            with pytest.raises(MCPError) as raised:
                await request
            failures.append(raised.value)
        with pytest.raises(
            AttributeError, match=r"client_session has no 'subscribe_resource'\. It has: call_tool"
        ):
            cast("Any", mcp).subscribe_resource("notes://a")

    assert (before, mcp.instructions, mcp.initialize_result) == (None, "Read the notes.", initialized)
    assert (initialized.server_info.version, initialized.capabilities.completions is not None) == (
        "3.1",
        True,
    )
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert [one.uri_template for one in templates.resource_templates] == ["notes://{name}"]
    assert completed.completion.values == ["a1"]
    assert [(failure.code, failure.data["code"]) for failure in failures] == [(-32602, "PEER_ERROR")] * 3
    assert "There is no resource 'other://a' here." in failures[0].message


async def test_a_client_session_of_a_closed_session_raises_the_error_of_the_sdk():
    async with host_of(FakeServer({"write": "done"})) as host, host.session(keep=False) as session:
        mcp = client_session(session, "fake")
        with pytest.raises(MCPError, match="NaN"):
            await mcp.call_tool("write", {"a": float("nan")})
    uses: list[Callable[[], Awaitable[object]]] = [
        mcp.initialize,
        mcp.list_tools,
        lambda: mcp.call_tool("write"),
        mcp.list_resources,
        mcp.list_resource_templates,
        lambda: mcp.read_resource("a://b"),
        mcp.list_prompts,
        lambda: mcp.get_prompt("a"),
        lambda: mcp.complete(types.PromptReference(type="ref/prompt", name="a"), {"name": "b", "value": ""}),
    ]
    for use in uses:
        with pytest.raises(MCPError) as raised:
            await use()
        assert raised.value.error.data["code"] == "SCOPE_CLOSED"


async def test_names_of_the_mcp_sdk_are_answered_with_those_of_a_session():
    async with host_of(FakeServer({"write": "done"})) as host, host.session(keep=False) as session:
        result = await session.call("fake.write")
        tool = next(tool for tool in await session.tools() if tool.name == "fake.write")
        things: list[tuple[Any, str]] = [(session, "call_tool"), (result, "is_error"), (tool, "inputSchema")]
        said: list[str] = []
        for thing, name in things:
            with pytest.raises(AttributeError) as raised:
                getattr(thing, name)
            said.append(str(raised.value).partition("Write: ")[2])

    assert said == ['await session.call("server.tool", {…})', "not result.ok", "tool.schema"]


@pytest.mark.promise("API-08")
async def test_adapters_pass_arguments_of_any_name_and_let_the_model_correct_a_number_that_is_none():
    box = Toolbox("box", envelope="meta")

    @box.tool()
    def scale(config: str, run_manager: str, self_: float = 0) -> str:  # pyright: ignore[reportUnusedFunction]
        """Scale."""
        return f"{config} {run_manager}"

    right, wrong = (
        {"config": "a", "run_manager": "b"},
        {"config": "a", "run_manager": "b", "self_": float("nan")},
    )
    async with host_of(box) as host, host.session(keep=False) as session:
        (tool,) = await langchain_tools(session, tools=["box.*"])
        toolset = pydantic_ai_toolset(session)
        said = [await tool.ainvoke(arguments) for arguments in (right, wrong)]
        with pytest.raises(ModelRetry, match="a NaN or an infinity"):
            await toolset.call_tool("box__scale", wrong, cast("Any", None), cast("Any", None))

    assert (said[0], said[1].startswith("BAD_ARGUMENT: ")) == ("a b", True)


async def test_an_image_alone_reaches_pydantic_ai_without_an_empty_text():
    box = Toolbox("box", envelope="meta")

    @box.tool()
    def draw() -> Image:  # pyright: ignore[reportUnusedFunction]
        """Draw."""
        return Image(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")

    async with host_of(box) as host, host.session(keep=False) as session:
        toolset = pydantic_ai_toolset(session)
        returned = await toolset.call_tool("box__draw", {}, cast("Any", None), cast("Any", None))

    assert [type(one).__name__ for one in returned.return_value] == ["BinaryContent"]
