"""Handlers that talk to their client: questions, samples and roots, in both eras."""

import asyncio
import functools
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict, cast

import pytest
from typing_extensions import TypeAliasType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Call, Image, Message, Meta, Root, Sample, Toolbox, ToolError, current_call
from holdfast.toolkit.question import make_form
from tests.toolkit.clients import Era
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.memory_client import Answer, connect

pytestmark = [pytest.mark.anyio, pytest.mark.promise("KIT-24")]
ERAS: list[Era] = ["handshake", "modern"]


@dataclass(frozen=True)
class Order:
    dish: Literal["soup", "salad"]
    plates: Annotated[int, "How many?", Meta(ge=1, le=9)] = 1
    note: str | None = None


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def always(answer: Any) -> Answer:
    """Answers every request in the same way."""
    return lambda method, params: answer


no_answer = always(None)


def box_with(handler: Any) -> Toolbox:
    box = Toolbox("asking")
    box.tool(name="it")(handler)
    return box


@pytest.mark.parametrize("era", ERAS)
async def test_handler_asks_the_user_and_gets_a_typed_answer(era: Era):
    asked: list[Any] = []
    seen: list[Order] = []

    async def it(call: Call) -> str:
        """Take an order."""
        order = await call.ask("What would you like?", Order)
        seen.append(order)
        return order.dish

    def answer(method: str, params: Any) -> Any:
        asked.append((method, params))
        return accept(dish="soup", plates=2)

    async with connect(box_with(it), era, answer=answer) as client:
        envelope = await client.call("it")

    assert (envelope["result"], seen) == ("soup", [Order("soup", 2)])
    assert asked == [
        (
            "elicitation/create",
            {
                "message": "What would you like?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "dish": {"type": "string", "enum": ["soup", "salad"]},
                        "plates": {
                            "type": "integer",
                            "description": "How many?",
                            "default": 1,
                            "minimum": 1,
                            "maximum": 9,
                        },
                        "note": {"type": "string"},
                    },
                    "required": ["dish"],
                },
            },
        )
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_async_handler_behind_a_sync_decorator_can_ask(era: Era):
    async def it(call: Call) -> bool:
        """Ask."""
        return await ask_anywhere()

    @functools.wraps(it)
    def logged(call: Call) -> Any:
        return it(call)

    async with connect(box_with(logged), era, answer=always(accept(value=True))) as client:
        assert (await client.call("it"))["result"] is True


@pytest.mark.parametrize("era", ERAS)
async def test_handler_without_the_call_that_asks_is_told_what_to_write(era: Era):
    async def it() -> bool:
        """Ask."""
        return await ask_anywhere()

    async with connect(box_with(it), era, answer=always(accept(value=True))) as client:
        envelope = await client.call("it")

    assert (envelope["code"], "`call: Call`" in envelope["error"]) == ("BAD_TOOL", True)


async def ask_anywhere() -> bool:
    """A helper that has no parameter with the call."""
    call = current_call()
    assert call is not None
    return await call.ask("Really?", bool)


@pytest.mark.parametrize("era", ERAS)
async def test_handler_runs_once_and_may_ask_several_times(era: Era):
    started: list[int] = []

    async def it(call: Call) -> list[int]:
        """Ask three times, twice at once."""
        started.append(1)
        first = await call.ask("First?", int)
        others = await asyncio.gather(call.ask("Second?", int), call.ask("Third?", int))
        return [first, *others]

    numbers = {"First?": 1, "Second?": 2, "Third?": 3}

    async with connect(
        box_with(it), era, answer=lambda method, params: accept(value=numbers[params["message"]])
    ) as client:
        envelope = await client.call("it")

    assert (envelope["items"], started) == ([1, 2, 3], [1])
    assert client.rounds == (2 if era == "modern" else 0)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_question_that_the_user_does_not_answer_fails_with_declined(era: Era, action: str):
    async def it(call: Call) -> None:
        """Ask."""
        await call.ask("Really?", bool)
        raise AssertionError

    async with connect(box_with(it), era, answer=always({"action": action})) as client:
        envelope = await client.call("it")

    assert (envelope["code"], envelope["details"]) == ("DECLINED", {"action": action})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "bad", [accept(value="two"), accept(), {"action": "maybe"}, {"action": "accept", "content": [1]}]
)
async def test_answer_that_does_not_match_the_question_is_refused(era: Era, bad: Any):
    async def it(call: Call) -> int:
        """Ask."""
        return await call.ask("How many?", int)

    async with connect(box_with(it), era, answer=always(bad)) as client:
        envelope = await client.call("it")

    assert envelope["code"] == "BAD_ANSWER"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("method", "capabilities", "missing"),
    [
        ("form", {}, "elicitation.form"),
        ("form", {"elicitation": {"url": {}}}, "elicitation.form"),
        ("url", {"elicitation": {}}, "elicitation.url"),
        ("sample", {"elicitation": {}}, "sampling"),
        ("roots", {"sampling": {}}, "roots"),
    ],
)
async def test_client_that_cannot_gives_a_clear_code(
    era: Era, method: str, capabilities: dict[str, Any], missing: str
):
    async def it(call: Call) -> None:
        """Ask for something that the client did not declare."""
        match method:
            case "form":
                await call.ask("?", str)
            case "url":
                await call.ask("?", url="https://example.org/login")
            case "sample":
                await call.sample("?")
            case _:
                await call.roots()

    async with connect(box_with(it), era, capabilities=capabilities) as client:
        envelope = await client.call("it")

    assert (envelope["code"], envelope["details"]) == ("MISSING_CAPABILITY", {"capability": missing})


async def test_handler_can_go_on_without_an_answer():
    async def it(call: Call) -> str:
        """Ask if that is possible."""
        try:
            return await call.ask("Name?", str)
        except ToolError as error:
            return error.code.name

    async with connect(box_with(it), "modern") as client:
        assert (await client.call("it"))["result"] == "MISSING_CAPABILITY"


async def test_client_that_answers_method_not_found_gives_the_same_code():
    async def it(call: Call) -> None:
        """Ask."""
        await call.roots()

    def refuse(method: str, params: Any) -> Any:
        from holdfast.wire.messages import PeerError

        raise PeerError(-32601, "no such method") if method == "roots/list" else AssertionError

    async with connect(box_with(it), "handshake", answer=refuse) as client:
        assert (await client.call("it"))["code"] == "MISSING_CAPABILITY"


@pytest.mark.parametrize("era", ERAS)
async def test_user_is_asked_to_open_a_page(era: Era):
    asked: list[Any] = []

    async def it(call: Call) -> str:
        """Let the user log in."""
        await call.ask("Please log in.", url="https://example.org/login")
        return "agreed"

    def answer(method: str, params: Any) -> Any:
        asked.append(params)
        return {"action": "accept"}

    async with connect(box_with(it), era, answer=answer) as client:
        envelope = await client.call("it")

    (params,) = asked
    assert (envelope["result"], "elicitationId" in params) == ("agreed", era == "handshake")
    assert {key: params[key] for key in ("mode", "message", "url")} == {
        "mode": "url",
        "message": "Please log in.",
        "url": "https://example.org/login",
    }


@pytest.mark.parametrize("era", ERAS)
async def test_handler_samples_the_clients_model(era: Era):
    asked: list[Any] = []
    said: list[Sample] = []

    async def it(call: Call) -> None:
        """Sample."""
        messages = [Message("Hello", "assistant"), "What is this?", Image(b"png")]
        said.append(
            await call.sample(messages, max_tokens=9, system="Be short.", models=["small"], stop=["."])
        )

    def answer(method: str, params: Any) -> Any:
        asked.append((method, params))
        return {
            "role": "assistant",
            "content": {"type": "text", "text": "A cat"},
            "model": "tiny",
            "stopReason": "endTurn",
        }

    async with connect(box_with(it), era, answer=answer) as client:
        await client.call("it")

    assert said == [
        Sample(text="A cat", content=[{"type": "text", "text": "A cat"}], model="tiny", stop_reason="endTurn")
    ]
    assert asked == [
        (
            "sampling/createMessage",
            {
                "messages": [
                    {"role": "assistant", "content": {"type": "text", "text": "Hello"}},
                    {"role": "user", "content": {"type": "text", "text": "What is this?"}},
                    {"role": "user", "content": {"type": "image", "data": "cG5n", "mimeType": "image/png"}},
                ],
                "maxTokens": 9,
                "systemPrompt": "Be short.",
                "stopSequences": ["."],
                "modelPreferences": {"hints": [{"name": "small"}]},
            },
        )
    ]


@pytest.mark.parametrize(("era", "sent"), [("handshake", ["one", "two"]), ("modern", [])])
async def test_client_that_asks_for_no_level_gets_logs_as_its_era_expects(era: Era, sent: list[str]):
    async def it(call: Call) -> None:
        """Log."""
        await call.log("debug", "none")
        await call.log("info", "one")
        await call.log("error", "two")

    async with connect(box_with(it), era) as client:
        await client.call("it")

    logged = [params["data"] for method, params in client.notifications if method == "notifications/message"]
    assert logged == sent


@pytest.mark.parametrize("era", ERAS)
async def test_handler_lists_the_roots(era: Era):
    found: list[Root] = []

    async def it(call: Call) -> None:
        """List the roots."""
        found.extend(await call.roots())

    roots = [{"uri": "file:///home/ann/my%20blog", "name": "blog"}, {"uri": "git://x"}]

    async with connect(box_with(it), era, answer=always({"roots": roots})) as client:
        await client.call("it")

    assert found == [Root("file:///home/ann/my%20blog", "blog"), Root("git://x")]
    assert [root.path and str(root.path) for root in found] == ["/home/ann/my blog", None]


async def test_progress_after_a_round_trip_has_the_newest_token():
    async def it(call: Call) -> None:
        """Report progress before and after a question."""
        await call.progress(1)
        await call.ask("Go on?", bool)
        await call.progress(2)

    async with connect(box_with(it), "modern", answer=no_answer) as client:
        params: dict[str, Any] = {"name": "it", "arguments": {}}
        first = await client.request("tools/call", params, meta={"progressToken": "one"})
        (key,) = first["inputRequests"]
        more = {"requestState": first["requestState"], "inputResponses": {key: accept(value=True)}}
        await client.request("tools/call", {**params, **more}, meta={"progressToken": "two"})

    assert [(sent["progressToken"], sent["progress"]) for _, sent in client.notifications] == [
        ("one", 1),
        ("two", 2),
    ]


async def test_deadline_does_not_run_while_the_user_thinks():
    release = asyncio.Event()

    async def it(call: Call) -> bool:
        """Ask, and wait longer than the deadline for the answer."""
        return await call.ask("Go on?", bool)

    async def answer(method: str, params: Any) -> Any:
        await asyncio.sleep(0.2)  # longer than the deadline
        release.set()
        return accept(value=True)

    box = Toolbox("asking")
    box.tool(name="it", deadline=0.05)(it)
    async with connect(box, "handshake", answer=answer) as client:
        envelope = await client.call("it")

    assert (envelope["result"], release.is_set()) == (True, True)


async def test_deadline_runs_again_after_the_answer():
    async def it(call: Call) -> None:
        """Ask, then hang."""
        await call.ask("Go on?", bool)
        await asyncio.Event().wait()

    box = Toolbox("asking")
    box.tool(name="it", deadline=0.05)(it)
    async with connect(box, "modern", answer=always(accept(value=True))) as client:
        assert (await client.call("it"))["code"] == "TIMEOUT"


async def test_handler_can_ask_after_its_deadline():
    async def it(call: Call) -> None:
        """Ask while the deadline has passed already."""
        try:
            await asyncio.Event().wait()
        finally:
            await call.ask("Clean up?", bool)

    box = Toolbox("asking")
    box.tool(name="it", deadline=0.05)(it)
    async with connect(box, "handshake", answer=always(accept(value=True))) as client:
        assert (await client.call("it"))["code"] == "TIMEOUT"


async def test_call_waits_only_for_its_own_caller_tool_and_arguments():
    async def it(call: Call, number: int = 0) -> bool:
        """Ask."""
        return await call.ask("Go on?", bool)

    box = box_with(it)
    box.tool(name="other")(it)
    async with connect(box, "modern", answer=no_answer) as client:
        first = await client.request("tools/call", {"name": "it", "arguments": {}}, session=ANN)
        (key,) = first["inputRequests"]
        more = {"requestState": first["requestState"], "inputResponses": {key: accept(value=True)}}
        params: dict[str, Any] = {"name": "it", "arguments": {}, **more}
        refused = [
            await client.error("tools/call", params, session=BOB),
            await client.error("tools/call", {**params, "name": "other"}, session=ANN),
            await client.error("tools/call", {**params, "arguments": {"number": 1}}, session=ANN),
            await client.error("tools/call", {**params, "requestState": "guessed"}, session=ANN),
        ]
        answered = await client.request("tools/call", params, session=ANN)
        again = await client.error("tools/call", params, session=ANN)

    assert {code for code, _ in refused} == {-32602}
    assert (answered["structuredContent"]["result"], again[0]) == (True, -32602)


async def test_answers_that_are_missing_are_asked_for_again():
    async def it(call: Call) -> list[bool]:
        """Ask two questions at once."""
        return list(await asyncio.gather(call.ask("A?", bool, key="a"), call.ask("B?", bool, key="b")))

    async with connect(box_with(it), "modern", answer=no_answer) as client:
        params: dict[str, Any] = {"name": "it", "arguments": {}}
        first = await client.request("tools/call", params)
        second = await client.request(
            "tools/call",
            {
                **params,
                "requestState": first["requestState"],
                "inputResponses": {"a": accept(value=True), "b": 7, "c": {}},
            },
        )
        done = await client.request(
            "tools/call",
            {
                **params,
                "requestState": second["requestState"],
                "inputResponses": {"b": accept(value=False)},
            },
        )

    assert [sorted(each.get("inputRequests", ())) for each in (first, second, done)] == [
        ["a", "b"],
        ["b"],
        [],
    ]
    assert done["structuredContent"]["items"] == [True, False]


async def test_waiting_call_is_cancelled_when_the_server_ends():
    ended: list[str] = []

    async def it(call: Call) -> None:
        """Ask."""
        try:
            await call.ask("Go on?", bool)
        finally:
            ended.append("ended")

    async with connect(box_with(it), "modern", answer=no_answer) as client:
        await client.request("tools/call", {"name": "it", "arguments": {}})

    assert ended == ["ended"]


async def test_calls_that_wait_are_limited_for_each_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.toolkit.round_trips.MAX_WAITING_PER_CALLER", 2)

    async def it(call: Call) -> None:
        """Ask."""
        await call.ask("Go on?", bool)

    async with connect(box_with(it), "modern", answer=no_answer) as client:
        params: dict[str, Any] = {"name": "it", "arguments": {}}
        for _ in range(2):
            await client.request("tools/call", params, session=ANN)
        too_many = await client.error("tools/call", params, session=ANN)
        other = await client.request("tools/call", params, session=BOB)

    assert (too_many[0], other["resultType"]) == (-32004, "input_required")


Plates = TypeAliasType("Plates", Annotated[int, Meta(ge=1)])


class Flags(TypedDict, total=False):
    sizes: list[Literal["s", "m"]]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (date, {"type": "string", "format": "date"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        (int | None, {"type": "integer"}),
        (Plates, {"type": "integer", "minimum": 1}),
        (Decimal, {"type": "number"}),
        (datetime, {"type": "string", "format": "date-time"}),
    ],
)
def test_form_for_a_type(kind: Any, field: Any):
    assert make_form(kind).schema == {
        "type": "object",
        "properties": {"value": field},
        "required": ["value"],
    }


class Address(TypedDict):
    street: str
    city: str


def test_form_shows_the_fields_in_the_order_in_which_they_are_written():
    assert [*cast("dict[str, Any]", make_form(Address).schema["properties"])] == ["street", "city"]


@pytest.mark.parametrize("kind", [["tea", "milk"], {"tea": {"title": "Tea"}}, ("tea", "milk"), "tea"])
def test_choices_in_the_way_of_fastmcp_are_answered_with_what_to_write(kind: Any):
    with pytest.raises(HoldfastError) as refused:
        make_form(kind)

    assert (refused.value.code, 'Literal["tea", "milk"]' in str(refused.value.hint)) == (codes.BAD_TOOL, True)


def test_form_for_a_pydantic_model():
    from pydantic import BaseModel, Field

    class Person(BaseModel):
        name: str = Field(min_length=1, description="Your name")
        age: int | None = None

    form = make_form(Person)

    assert form.schema["required"] == ["name"]
    assert form.schema["properties"] == {
        "name": {"type": "string", "description": "Your name", "minLength": 1},
        "age": {"type": "integer"},
    }
    assert form.parse({"name": "Ann"}) == Person(name="Ann")


@pytest.mark.parametrize(
    "kind", [None, dict[str, int], list[str], bytes | int, Any, tuple[int, int], list[Order]]
)
def test_type_without_a_form_is_refused(kind: Any):
    with pytest.raises(HoldfastError, match=r"call\.ask|cannot be read|forms are flat"):
        make_form(kind)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (Order, {"dish": "soup", "plates": "hunter2"}, "plates: Expected `int`, got `str`."),
        (Order, {"plates": 2}, "The form: Object missing required field `dish`."),
        (Order, {"dish": "cake"}, "dish: This value is not one of the choices."),
        (bool, {"value": "hunter2"}, "value: Expected `bool`, got `str`."),
        (bool, {"yes": True}, "value: It is required. yes: Unknown argument. Known: value."),
    ],
)
async def test_answer_that_does_not_match_says_which_field_is_wrong(
    kind: Any, content: dict[str, Any], message: str
):
    async def it(call: Call) -> None:
        """Ask."""
        await call.ask("What?", kind)

    async with connect(box_with(it), "modern", answer=always(accept(**content))) as client:
        envelope = await client.call("it")

    assert (envelope["code"], "hunter2" in str(envelope)) == ("BAD_ANSWER", False)
    assert message in envelope["error"]
