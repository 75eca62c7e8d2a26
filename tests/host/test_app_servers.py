"""Servers that an application passes: their forms, toolboxes, lazy servers, and what the application gets back."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from mcp_types import ElicitResult

from holdfast import HoldfastError, Host, JsonObject, ServerConfigs, events, settings
from holdfast.host.callback_door import CallbackDoor
from holdfast.model.door import PermissionQuestion
from holdfast.model.server import Source
from holdfast.resolve.screen_tools import WithheldTool
from holdfast.store.memory import MemoryStore
from holdfast.store.types import StoredEvent
from holdfast.toolkit import Toolbox
from tests.connect.conftest import counter_entry
from tests.host import box_servers
from tests.host.box_servers import make_box

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@dataclass
class Order:
    item: str
    count: int


class OrderModel(pydantic.BaseModel):
    item: str
    how_many: int = pydantic.Field(alias="count")


def make_host(tmp_path: Path, servers: ServerConfigs, store: MemoryStore | None = None) -> Host:
    (tmp_path / "config.toml").touch()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
    }
    loaded = settings.load(tmp_path / "config.toml", environ)
    return Host(settings=loaded, store=store or MemoryStore(), servers=servers)


def counter(**more: Any) -> dict[str, Any]:
    environ = {"PYTHONPATH": str(ROOT)}
    return {"command": sys.executable, "args": ["-m", "tests.connect.counter_server"], "env": environ, **more}


@pytest.mark.promise("API-01")
async def test_a_toolbox_is_a_server_and_a_factory_makes_one_for_each_session(tmp_path: Path):
    shared = make_box()
    box_servers.lifespans.clear()
    async with make_host(tmp_path, {"shared": shared, "own": make_box}) as host:
        totals: list[tuple[int, int]] = []
        for _ in range(2):
            async with host.session(user_id="ann") as session:
                who = (await session.call("own.whoami")).raise_for_error().data
                calls = [await session.call(f"{name}.order", {"item": "tea"}) for name in ("shared", "own")]
                totals.append((calls[0].data["orders"], calls[1].data["orders"]))

                assert {key: who[key] for key in ("session", "user", "trust")} == {
                    "session": session.context.session_id,
                    "user": "ann",
                    "trust": "direct",
                }

    assert totals == [(1, 1), (2, 1)]
    assert sorted(box_servers.lifespans) == ["begin"] * 4 + ["end"] * 4


@pytest.mark.promise("API-01")
@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (
            {"a": {"command": "x", "lifetme": "run"}},
            "'a' has an unknown key 'lifetme'. Did you mean 'lifetime'?",
        ),
        ({"a": {"cmd": "x"}}, "'a' has an unknown key 'cmd'. Did you mean 'command'?"),
        (
            {"a": {"command": "x", "autoApprove": []}},
            "'a' has an unknown key 'autoApprove'. The keys are: args, ",
        ),
        ({"a": "counter.py"}, "a Toolbox, or a function that returns a Toolbox; not a value of the type str"),
        ({"a": {"toolbox": 5}}, "not a value of the type int"),
        ({"a": {"command": "x", "env": {"A": object()}}}, "a value of the type object is not supported"),
        ([{"name": "a"}], "`servers` must be like"),
        ({"command": "x", "args": []}, "it is one server without a name."),
        ({"url": "https://x.org"}, "it is one server without a name."),
        ({"a": {"command": "x", "args": "y"}}, "'a' cannot be used. args: Expected `array`, got `str`."),
        ({"a": {"command": "x", "timeout": "3"}}, "timeout: Expected `float | null`, got `str`."),
        ({"a": {"command": "x", "timeout": -1}}, "timeout: Expected `float` > 0.0."),
        ({"a": {"command": "x", "timeout": float("inf")}}, "'timeout' must be finite, not inf."),
        ({"a": {"command": "x", "warm": -1}}, "warm: Expected `int` >= 0."),
        ({"a": {"command": "x", "lifetime": "host", "warm": 1}}, '"warm" works only for a server that'),
        (
            {"a": {"command": "x", "lifetime": "ever"}},
            "lifetime: This value is not allowed; it must be 'run' or 'session' or 'host'.",
        ),
        ({"a": {"command": "x", "trust_level": "blind"}}, "trust_level: 'blind' is not a trust level"),
        ({"a": {"command": "x", "cwd": "folder"}}, '"cwd" is neither'),
        ({"a": {"command": ""}}, '"command" is empty. Write the program to start.'),
        (
            {"a": {"url": "example.org"}},
            '"url" is not an http or https URL. Write one such as https://example.org/mcp.',
        ),
        ({"a": {}}, 'neither a "command" nor a "url"'),
        ({"a": {"command": "x", "url": "https://x.org", "disabled": True}}, "Keep one."),
        ({"a": {"toolbox": make_box, "confined": True}}, "It is a toolbox"),
    ],
)
async def test_a_wrong_server_is_refused_by_name_when_it_is_given(servers: Any, message: str):
    with pytest.raises(HoldfastError) as raised:
        Host(servers=servers)

    assert (raised.value.code.name, message in raised.value.message) == ("BAD_ARGUMENT", True)


@pytest.mark.promise("API-05")
async def test_a_tool_of_a_server_that_did_not_start_answers_with_the_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    servers: ServerConfigs = {
        "gone": {"command": str(tmp_path / "missing")},
        "lazy": {"command": str(tmp_path / "missing"), "lazy": True},
        "bad": {"toolbox": lambda: 5},  # type: ignore[dict-item, return-value]
    }
    with caplog.at_level(logging.WARNING):
        async with make_host(tmp_path, servers) as host, host.session() as session:
            refused = {name: await session.call(f"{name}.order") for name in servers}
            unknown = await session.call("other.order")

    reasons = {refusal.server: refusal.reason for refusal in session.refusals}
    assert {name: (result.ok, result.code) for name, result in refused.items()} == dict.fromkeys(
        servers, (False, "SERVER_REFUSED")
    )
    assert all(reasons[name] in result.message for name, result in refused.items())
    assert unknown.code == "UNKNOWN_TOOL"
    assert [name for name in servers if f"server refused: {name}" not in caplog.text] == []


async def test_an_entry_whose_name_is_taken_is_logged_once_with_its_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"shop": {"command": "true"}}}')
    with caplog.at_level(logging.WARNING):
        async with make_host(tmp_path, {"shop": {"toolbox": Toolbox("shop")}}) as host:
            for _ in range(2):
                async with host.session():
                    pass

    (refused,) = (text for text in caplog.messages if text.startswith("server refused"))
    assert refused == (
        f"server refused: shop: The entry in {tmp_path / 'mcp.json'} is not used: "
        "a server in the application that embeds Host has the same name. Rename one of them."
    )


def running(host: Host) -> list[str]:
    """The servers of the application that are connected."""
    return [spec.name for spec in host.links.specs() if spec.source is Source.APP]


@pytest.mark.promise("API-01")
async def test_a_lazy_server_starts_at_its_first_call_and_is_listed_from_the_last_time(tmp_path: Path):
    store = MemoryStore()
    lazy: ServerConfigs = {"c": counter(lazy=True, pin_tools=True)}
    async with make_host(tmp_path, lazy, store) as host, host.session() as session:
        assert (session.not_started, "c" in session.available, running(host)) == (("c",), False, [])
        count = await session.call("c.count")
        assert (count.ok, session.not_started, running(host)) == (True, (), ["c"])
    # Another host finds the pins in the store.
    async with make_host(tmp_path, lazy, store) as host, host.session() as session:
        names = {tool.name for tool in await session.tools()}
        assert ("c.count" in names, session.not_started, running(host)) == (True, ("c",), [])
        count = await session.call("c.count")
        assert (count.text, session.not_started) == ("1", ())


async def test_a_lazy_server_whose_tools_change_before_they_are_needed_does_not_block_the_session(
    tmp_path: Path,
):
    lazy: ServerConfigs = {"shop": {"toolbox": make_box, "lazy": True}}
    async with make_host(tmp_path, lazy) as host, host.session() as session:
        await session.server_info("shop")  # connects to the server, but does not list its tools
        session.refresh_tools("shop")  # as after `notifications/tools/list_changed`

        async with asyncio.timeout(30):
            names = {tool.name for tool in await session.tools()}

    assert "shop.order" in names


@pytest.mark.promise("API-02", "API-03")
async def test_servers_of_an_application_are_pinned_only_if_asked_and_for_each_user(tmp_path: Path):
    store = MemoryStore()
    changed = make_box()
    changed.remove(tool="picture")

    @changed.tool(name="picture")
    def other(path: str) -> str:
        """Do something else."""
        return path

    async def is_offered(box: Toolbox, *, pinned: bool, user: str) -> bool:
        config: ServerConfigs = {"shop": {"toolbox": box, "pin_tools": pinned}}
        async with make_host(tmp_path, config, store) as host, host.session(user_id=user) as session:
            offered = "shop.picture" in {tool.name for tool in await session.tools()}
            assert [*session.awaiting_approval] == ([] if offered else ["shop"])
            return offered

    offered = {
        (pinned, user): [await is_offered(box, pinned=pinned, user=user) for box in boxes]
        for pinned, user, boxes in (
            (False, "ann", [make_box(), changed]),
            (True, "ann", [make_box(), changed]),
            (True, "bob", [changed, make_box()]),
        )
    }

    assert offered == {
        (False, "ann"): [True, True],
        (True, "ann"): [True, False],
        (True, "bob"): [True, False],
    }


async def test_timeout_cwd_and_era_of_a_server_are_honoured(tmp_path: Path):
    folder = tmp_path / "here"
    folder.mkdir()
    box = make_box()

    @box.tool()
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    servers: ServerConfigs = {
        "old": counter(era="handshake", cwd=folder),
        "new": counter(),
        "slow": {"toolbox": box, "timeout": 0.05},
    }
    async with make_host(tmp_path, servers) as host, host.session() as session:
        seen = (await session.call("old.whoami")).data
        late = await session.call("slow.wait")
        links = {link.spec.name: link.find_live_connection() for link in host.links._iter_links()}
        eras = {name: link.server_info.era for name, link in links.items() if link is not None}

    assert (seen["cwd"], late.code) == (str(folder), "TIMEOUT")
    assert (eras["old"], eras["new"]) == ("handshake", "modern")


async def test_results_say_what_went_wrong_and_carry_images(tmp_path: Path):
    servers: ServerConfigs = {"shop": make_box(), "plain": make_box("plain", envelope=False)}
    async with make_host(tmp_path, servers) as host, host.session() as session:
        failed = [await session.call(f"{name}.order", {"item": "cake"}) for name in servers]
        image = (await session.call("shop.picture")).images[0]
        given: list[Any] = [Order("tea", 2), OrderModel(item="tea", count=2), {"item": "tea", "count": 2}]
        orders = [(await session.call("shop.order", order)).data["orders"] for order in given]
        tool = next(tool for tool in await session.tools() if tool.name == "shop.order")

    assert [(result.ok, result.code, result.message) for result in failed] == [
        (False, "SOLD_OUT", "There is no cake left.")
    ] * 2
    with pytest.raises(HoldfastError, match="There is no cake left") as raised:
        failed[0].raise_for_error()
    assert raised.value.code.name == "SOLD_OUT"
    assert (image.data, image.mime_type, orders) == (b"\x89PNG", "image/png", [2, 4, 6])
    properties = tool.schema["properties"]
    assert isinstance(properties, Mapping)
    assert (set(properties), tool.description) == (
        {"item", "count"},
        "Order something.\n\nFails with: SOLD_OUT.",
    )
    assert repr(tool) == "<CatalogTool shop.order>"
    assert "Raw" not in repr(WithheldTool(name="order", reason="It is new.", definition=tool.definition))
    assert repr(failed[0]).startswith("<ToolResult failed SOLD_OUT: ")
    assert repr(session) == f"<Session {session.context.session_id} direct, closed>"


@pytest.mark.promise("API-07")
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_application_answers_a_sessions_questions_with_functions(tmp_path: Path, is_async: bool):
    asked: list[str] = []
    seen: list[str] = []

    def make(answer: Any) -> Any:
        def sync(question: Any) -> Any:
            asked.append(question.title if isinstance(question, PermissionQuestion) else question["message"])
            return answer

        async def later(question: Any) -> Any:
            return sync(question)

        return later if is_async else sync

    def watch(stored: StoredEvent) -> None:
        seen.append(events.event_kind(stored.event))

    async def watch_later(stored: StoredEvent) -> None:
        watch(stored)

    async with make_host(tmp_path, {"shop": make_box()}) as host:
        async with host.session(
            ask=make(True), elicit=make({"value": True}), on_event=watch_later if is_async else watch
        ) as session:
            accepted = await session.call("shop.confirm")
        async with host.session(ask=make(False)) as session:
            rejected = await session.call("shop.order", {"item": "tea"})

    assert (accepted.ok, rejected.ok, rejected.code) == (True, False, "NOT_PERMITTED")
    assert (len(asked), any("Really?" in question for question in asked)) == (3, True)
    assert (seen[0], seen[-1], seen.count("tool_ended")) == ("session_opened", "session_closed", 1)


@pytest.mark.promise("API-07")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_function_that_raises_leaves_the_question_without_an_answer(
    tmp_path: Path, era: str, caplog: pytest.LogCaptureFixture
):
    def fail(question: Any) -> Any:
        raise LookupError("a secret of the application")

    server = counter_entry(f"--{era}")
    async with make_host(tmp_path, {"c": server}) as host:
        async with host.session(ask=fail) as session:
            refused = await session.call("c.count")
        async with host.session(elicit=fail, sample=fail, permission="auto") as session:
            results = [await session.call(f"c.{name}", arguments) for name, arguments in QUESTIONS[era]]
            after = await session.call("c.count")

    assert (refused.code, after.ok, {result.ok for result in results}) == ("NOT_PERMITTED", True, {False})
    texts = [refused.text, *(result.text for result in results)]
    assert {"raised LookupError" in text for text in texts} == {True}
    assert not any("a secret of the application" in text for text in texts)
    assert caplog.text.count("a secret of the application") >= len(texts)


@dataclass
class Form:
    value: bool


ANSWERS: dict[str, tuple[Any, str]] = {
    "fields": ({"value": True}, ""),
    "dataclass": (Form(value=True), ""),
    "the result of the request": ({"action": "accept", "content": {"value": True}}, ""),
    "the SDK's result": (ElicitResult(action="accept", content={"value": True}), ""),
    "declined": (ElicitResult(action="decline"), "DECLINED"),
    "cancelled": ({"action": "cancel"}, "DECLINED"),
    "a class": (Form, "BAD_ARGUMENT"),
    "no JSON": ({"value": object()}, "BAD_ARGUMENT"),
}


@pytest.mark.promise("API-07")
@pytest.mark.parametrize("name", ANSWERS)
async def test_elicit_may_return_the_fields_or_the_result_of_the_request(tmp_path: Path, name: str):
    answer, code = ANSWERS[name]
    async with (
        make_host(tmp_path, {"shop": make_box()}) as host,
        host.session(elicit=lambda _: answer, keep=False) as session,
    ):
        result = await session.call("shop.confirm")

    assert (result.ok, result.code) == (not code, code)


def test_a_form_with_a_field_named_action_gets_its_fields():
    door = CallbackDoor(elicit_with=lambda _: {"action": "accept"})
    params: JsonObject = {"requestedSchema": {"type": "object", "properties": {"action": {"type": "string"}}}}

    assert asyncio.run(door.elicit(params)) == {"action": "accept", "content": {"action": "accept"}}


@pytest.mark.promise("API-07")
async def test_a_sample_without_content_names_the_function(tmp_path: Path):
    async with (
        make_host(tmp_path, {"c": counter_entry("--handshake")}) as host,
        host.session(sample=lambda _: {"text": "hello"}, keep=False) as session,
    ):
        result = await session.call("c.sample")

    assert (result.ok, "`sample` must return a string" in result.text) == (False, True)


QUESTIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "handshake": [("elicit", {}), ("sample", {})],
    "modern": [
        ("wants", {"method": "elicitation/create"}),
        ("wants", {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}),
    ],
}


@pytest.mark.promise("API-07")
@pytest.mark.parametrize("option", ["ask", "elicit", "sample", "on_event"])
@pytest.mark.parametrize("function", [5, lambda: True, divmod])
async def test_a_function_that_cannot_be_called_as_needed_is_refused_at_once(
    tmp_path: Path, option: str, function: Any
):
    async with make_host(tmp_path, {}) as host:
        with pytest.raises(HoldfastError, match=f"`{option}` must be a function of one argument"):
            async with host.session(**{option: function}):  # type: ignore[arg-type]
                pytest.fail("the session was opened")


async def test_progress_goes_to_a_sync_or_async_function(tmp_path: Path):
    seen: list[Mapping[str, Any]] = []

    async def later(params: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        seen.append(params)

    async with make_host(tmp_path, {"c": counter()}) as host, host.session() as session:
        for function in (seen.append, later):
            await session.call("c.progress", on_progress=function)
        with pytest.raises(HoldfastError, match="`on_progress` must be a function"):
            await session.call("c.progress", on_progress=5)  # type: ignore[arg-type]

    assert len(seen) >= 2


async def test_a_host_that_is_not_open_says_so(tmp_path: Path):
    host = make_host(tmp_path, {})
    with pytest.raises(HoldfastError, match="It was not entered: use it inside `async with Host"):
        await host.tools()
    with pytest.raises(HoldfastError, match="It was not entered"):
        _ = host.store
    async with host:
        pass
    with pytest.raises(HoldfastError, match="Its `async with` block has ended"):
        async with host.session():
            pass
    with pytest.raises(HoldfastError, match="a Host is entered once"):
        await host.__aenter__()


def test_trio_is_told_in_one_sentence(tmp_path: Path):
    entering = make_host(tmp_path, {}).__aenter__()
    with pytest.raises(HoldfastError, match="does not support trio"):
        entering.send(None)  # the first step of a coroutine, without an asyncio event loop


async def test_a_wrong_number_of_seconds_is_an_error_at_once(tmp_path: Path):
    box = make_box()
    wrong: list[Any] = ["3", -1, 0, True, float("nan"), float("inf")]
    said: list[str] = []
    async with make_host(tmp_path, {"box": box}) as host, host.session() as session:
        for value in wrong:
            with pytest.raises(HoldfastError) as raised:
                await session.call("box.order", {"item": "tea"}, timeout=value)
            said.append(raised.value.message)
            with pytest.raises(HoldfastError, match="`deadline of late` must be a number of seconds"):
                box.tool(name="late", deadline=value)(print)
        with pytest.raises(HoldfastError, match="`older_than` must be a timedelta"):
            await host.prune(older_than=7)  # type: ignore[arg-type]
        assert (await session.call("box.order", {"item": "tea"}, timeout=30)).data["orders"] == 1

    assert said[:2] == [
        "`timeout` must be a number of seconds, not a value of the type str.",
        "`timeout` must be a number of seconds, more than 0 and finite, not -1.",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_elicit_gets_the_address_of_a_page_to_open(tmp_path: Path, era: Literal["handshake", "modern"]):
    script = tmp_path / "bank.py"
    script.write_text(BANK)
    asked: list[tuple[object, object]] = []

    def elicit(params: JsonObject) -> bool:
        asked.append((params["mode"], params["url"]))
        return len(asked) == 1

    servers: ServerConfigs = {"bank": {"command": sys.executable, "args": [str(script)], "era": era}}
    async with (
        make_host(tmp_path, servers) as host,
        host.session(keep=False, elicit=elicit) as session,
    ):
        codes = [(await session.call("bank.log_in")).code for _ in range(2)]

    assert codes == ["", "DECLINED"]
    assert asked == [("url", "https://bank.example/login")] * 2


BANK = """
from holdfast.toolkit import Call, Toolbox

box = Toolbox("bank")

@box.tool
async def log_in(call: Call) -> None:
    \"\"\"Log in.\"\"\"
    await call.ask("Please log in.", url="https://bank.example/login")

box.main()
"""
