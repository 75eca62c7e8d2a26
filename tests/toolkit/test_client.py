"""A box is called in memory, over the real wire, in both eras, as any caller."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast import HoldfastError
from holdfast.testing import (
    FakeError,
    FakeServer,
    assert_audit_intact,
    assert_called,
    assert_not_called,
    audit_records,
    calls_of,
    host_of,
)
from holdfast.toolkit import Call, Toolbox, ToolError, Workspace, current_call, direct_only

pytestmark = pytest.mark.anyio


def make_box() -> Toolbox:
    box = Toolbox("desk")

    @box.tool(guards=[direct_only])
    async def who(call: Call, workspace: Workspace) -> dict[str, str]:
        """Say who calls."""
        await call.progress(1, total=2, message="half")
        await call.log("info", "asked")
        session = call.session
        return {"user": (session.user_id or "") if session else "", "folder": workspace.path}

    @box.tool
    async def order(call: Call, item: str) -> str:
        """Order something."""
        if item == "cake":
            raise ToolError("No cake.")
        answer = await call.ask(f"Really {item}?", bool)
        sample = await call.sample("Say something.")
        roots = await call.roots()
        return f"{item} {answer} {sample.text} {len(roots)}"

    @box.resource("desk://menu")
    def menu() -> str:
        """The menu."""
        return "tea"

    @box.prompt
    def greet(name: str) -> str:
        """Greet."""
        return f"Greet {name}."

    return box


@pytest.mark.promise("KIT-27")
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_a_box_is_called_in_memory_in_both_eras_as_any_caller(
    tmp_path: Path, era: Literal["modern", "handshake"]
):
    box = make_box()
    async with box.client(
        trust="direct", user_id="ann", workspace=tmp_path, era=era,
        elicit=lambda params: True if "URL" in str(params) else {"value": True},
        sample=lambda params: "hello", roots=[tmp_path],
    ) as client:  # fmt: skip
        names = [tool["name"] for tool in await client.list_tools()]
        who = (await client.call("who")).raise_for_error().data
        order = await client.call("order", {"item": "tea"})
        failed = await client.call("order", {"item": "cake"})
        menu = await client.read_resource("desk://menu")
        prompt = await client.get_prompt("greet", {"name": "Bob"})

        assert (client.era, names) == (era, ["who", "order"])
        assert (who["user"], who["folder"]) == ("ann", str(tmp_path.resolve()))
        assert order.data["result"] == "tea True hello 1"
        assert (failed.ok, failed.code) == (False, "TOOL_FAILED")
        assert (menu[0]["text"], "Greet Bob." in str(prompt)) == ("tea", True)
        assert ([each["message"] for each in client.progress], [each["data"] for each in client.logs]) == (
            ["half"],
            ["asked"],
        )
        with pytest.raises(HoldfastError, match="No cake"):
            failed.raise_for_error()
    async with box.client(era=era) as client:
        anonymous = await client.call("who")
        cannot = await client.call("order", {"item": "tea"})
    async with box.client(trust="sandboxed", workspace=tmp_path, era=era) as client:
        sandboxed = await client.call("who")
    assert (anonymous.code, sandboxed.code, cannot.code) == (
        "MISSING_WORKSPACE",
        "DENIED",
        "MISSING_CAPABILITY",
    )


async def test_current_call_has_the_state_and_the_workspace_in_guards_and_handlers(tmp_path: Path):
    async def lifespan(box: Toolbox) -> AsyncIterator[str]:
        yield "the state"

    box = Toolbox("desk", lifespan=lifespan)
    seen: list[tuple[Any, bool]] = []

    def helper(_: Call | None = None) -> None:
        call = current_call()
        assert call is not None
        seen.append((call.state, call.workspace is not None))

    @box.tool(guards=[helper])
    def work(workspace: Workspace) -> None:
        """Work."""
        helper()

    @box.resource("desk://drawer", guards=[helper])
    async def drawer(workspace: Workspace) -> str:
        """Look."""
        helper()
        return "empty"

    async with box.client(workspace=tmp_path, era="handshake") as client:
        (await client.call("work")).raise_for_error()
        await client.read_resource("desk://drawer")
        await client.request("resources/subscribe", {"uri": "desk://drawer"})

    assert seen == [("the state", True)] * 5


async def test_an_unknown_option_of_a_client_is_refused():
    with pytest.raises(TypeError, match="A client has no option 'user'"):
        make_box().client(user="ann")  # type: ignore[arg-type]


async def test_a_number_that_json_does_not_have_is_not_sent_as_null():
    async with make_box().client() as client:
        with pytest.raises(HoldfastError, match="a NaN or an infinity"):
            await client.call("order", {"sizes": [float("nan")]})


async def test_a_host_of_boxes_and_fake_servers_tells_what_was_called():
    async def slow(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"length": len(arguments["text"])}

    fake = FakeServer(
        {"search": {"hits": 3}, "say": "hello", "fail": FakeError("out of order"), "slow": slow}
    )
    fake.add(
        "typed", 5, schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    box = make_box()
    async with host_of(box, other=fake) as host, host.session(user_id="ann") as session:
        results = [
            await session.call("other.search", {"q": "tea"}),
            await session.call("other.say"),
            await session.call("other.slow", {"text": "four"}),
            await session.call("other.fail"),
            await session.call("other.typed", {"n": "x"}),
        ]
        who = await session.call("desk.order", {"item": "cake"})

        assert [(result.ok, result.data, result.text) for result in results[:2]] == [
            (True, {"hits": 3}, '{"hits": 3}'),
            (True, None, "hello"),
        ]
        assert (results[2].data, results[3].ok, results[3].text) == ({"length": 4}, False, "out of order")
        assert (results[4].code, who.code) == ("BAD_ARGUMENT", "TOOL_FAILED")
        assert (fake.calls_to("search"), fake.calls[0].session.user_id) == ([{"q": "tea"}], "ann")
        await assert_called(session, "other.search", {"q": "tea"}, times=1)
        await assert_not_called(session, "desk.who")
        with pytest.raises(
            AssertionError, match=r"other.search was not called with .* Its calls: {'q': 'tea'}"
        ):
            await assert_called(session, "other.search", {"q": "milk"})
        assert [ended.outcome for _, ended in await calls_of(session) if ended] == [
            *("completed", "completed", "completed", "failed", "refused", "failed")
        ]
        await assert_audit_intact(host)
        records = await audit_records(host, session)
        assert {(record.server, record.tool) for record in records} >= {
            ("other", "search"),
            ("desk", "order"),
        }


async def test_a_folder_can_be_a_text_and_answers_are_functions(tmp_path: Path):
    box = make_box()

    async with box.client(workspace=str(tmp_path)) as client:
        assert (await client.call("who")).data["folder"] == str(tmp_path)
    for option in ("elicit", "sample"):
        wrong: Any = {option: 3}
        with pytest.raises(HoldfastError, match=f"`{option}` must take one parameter, the question"):
            async with box.client(**wrong):
                pass


@dataclass
class Size:
    size: int


@dataclass
class Order:
    item: str


ANSWERS: dict[str, tuple[Any, Any, str]] = {
    "the only value": (int, 3, "3"),
    "the fields": (int, {"value": 3}, "3"),
    "yes": (bool, True, "True"),
    "no": (bool, {"value": False}, "False"),
    "a choice": (Literal["a", "b"], "b", "b"),
    "a dataclass": (Size, Size(3), "Size(size=3)"),
    "declined": (int, None, "decline"),
    "cancelled": (int, {"action": "cancel"}, "cancel"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_client_of_a_box_and_a_session_take_the_same_answers(name: str):
    kind, answer, expected = ANSWERS[name]
    box = Toolbox("desk")

    @box.tool
    async def ask(call: Call) -> str:
        """Ask."""
        try:
            return str(await call.ask("Which?", kind))
        except ToolError as error:
            return str(error.details["action"])

    async with box.client(elicit=lambda question: answer) as client:
        by_client = (await client.call("ask")).raise_for_error().data["result"]
    async with host_of(box) as host, host.session(elicit=lambda question: answer) as session:
        by_session = (await session.call("desk.ask")).raise_for_error().data["result"]

    assert (by_client, by_session) == (expected, expected)


async def test_a_client_takes_the_arguments_of_a_session_and_raises_the_same_errors():
    box = make_box()
    sold_out = box.code("SOLD_OUT", http=409, hint="Order tea.")

    @box.tool(codes=["SOLD_OUT"])
    def buy(item: str) -> str:
        """Buy something."""
        raise ToolError(sold_out, f"There is no {item}.")

    @box.resource("desk://{drawer}")
    def drawer(drawer: str) -> str:
        """A drawer."""
        return drawer

    async with box.client() as client, host_of(box) as host, host.session() as session:
        failures = [await client.call("buy", Order("tea")), await session.call("desk.buy", Order("tea"))]
        (template,) = await client.list_resource_templates()

    raised: list[tuple[str, str]] = []
    for failure in failures:
        with pytest.raises(HoldfastError) as caught:
            failure.raise_for_error()
        raised.append((caught.value.code.name, caught.value.message))
    assert raised == [("SOLD_OUT", "There is no tea.")] * 2
    assert template["uriTemplate"] == "desk://{drawer}"


async def test_a_call_that_should_not_be_is_named_with_its_arguments():
    async with host_of(FakeServer({"search": "tea"})) as host, host.session() as session:
        await session.call("fake.search", {"q": "tea"})

        with pytest.raises(AssertionError, match=r"fake.search was called. Its calls: {'q': 'tea'}"):
            await assert_not_called(session, "fake.search")
        with pytest.raises(AssertionError, match="was called 1 times, not 2"):
            await assert_called(session, "fake.search", times=2)


@pytest.mark.parametrize(
    ("member", "instead"),
    [("elicit", "await call.ask(question, type)"), ("info", 'await call.log("info", "…")')],
)
def test_a_member_of_another_context_is_answered_with_what_to_write(member: str, instead: str):
    with pytest.raises(AttributeError) as caught:
        getattr(Call(tool="t"), member)

    assert str(caught.value) == f"'Call' object has no attribute {member!r}. Write: {instead}"
