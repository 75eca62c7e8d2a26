"""What an author of tools stumbles over: each mistake is refused with a reason, or has an answer that says what to do."""

import asyncio
import functools
import ipaddress
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Call, Given, Message, Meta, Toolbox

pytestmark = pytest.mark.anyio


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    color: Color


class Adder:
    async def __call__(self, number: int) -> int:
        """Add one."""
        return number + 1


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def make_crash(error: type[BaseException]) -> Callable[[], str]:
    def crash() -> str:
        """Crash."""
        raise error

    return crash


def make_async_crash(error: type[BaseException]) -> Callable[[], Any]:
    async def crash() -> str:
        """Crash."""
        raise error

    return crash


async def fail(box: Toolbox, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    async with box.client() as client:
        return (await client.call(tool, arguments)).envelope


async def test_values_that_only_python_has_are_sent_as_json_wherever_they_are():
    box = Toolbox("box", envelope="meta")

    @box.tool
    def describe() -> dict[str, Any]:
        """Describe."""
        values = {"path": Path("a"), "address": ipaddress.ip_address("1.1.1.1"), "deque": deque([1])}
        return {**values, "range": range(2), "keys": {"k": 1}.keys(), "made": (number for number in (1, 2))}

    @box.tool
    def count() -> list[int]:
        """Count."""
        numbers: Any = (number for number in (1, 2))
        return numbers

    async with box.client() as client:
        described, counted = (await client.call("describe")).data, (await client.call("count")).data

    assert described == {
        "path": "a",
        "address": "1.1.1.1",
        "deque": [1],
        "range": [0, 1],
        "keys": ["k"],
        "made": [1, 2],
    }
    assert counted == {"result": [1, 2]}


def make_loop() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: {"it": object()},
            "The result has a value of the type object, which JSON does not have. Convert it, for example with str(…).",
        ),
        (
            lambda: iter([float("inf"), None]),
            "The result has a NaN or an infinity, which JSON does not have.",
        ),
        (
            lambda: {(1, 2): "a"},
            "The result has a dict with a key of the type tuple. Use text or numbers as keys.",
        ),
        (
            lambda: [{None: "a"}],
            "The result has a dict with a key of the type NoneType. Use text or numbers as keys.",
        ),
        (
            make_loop,
            "The result is nested too deeply, or contains itself: a dict, a list or an object that is its own member.",
        ),
        (
            lambda: ["\ud800"],
            "The result has text with the character '\\ud800', which UTF-8 does not have.",
        ),
    ],
)
@pytest.mark.parametrize("envelope", ["content", "meta"])
async def test_a_value_without_json_is_an_error_whose_reason_is_in_the_log(
    make: Callable[[], Any],
    reason: str,
    envelope: Literal["content", "meta"],
    caplog: pytest.LogCaptureFixture,
):
    box = Toolbox("box", envelope=envelope)
    box.tool(name="odd", description="Return an odd value.")(make)

    assert (await fail(box, "odd"))["code"] == "INTERNAL_ERROR"
    (logged,) = (record.exc_info for record in caplog.records if record.exc_info)
    assert (str(logged[1]), logged[2]) == (reason, None), "no traceback: it would show only the toolkit"


async def test_a_result_that_does_not_fit_into_a_message_is_a_failure_of_the_tool(
    caplog: pytest.LogCaptureFixture,
):
    box = Toolbox("box")
    box.tool(name="big", description="Big.")(lambda: "x" * 9_000_000)
    box.resource("box://big")(lambda: "x" * 17_000_000)

    failure = await fail(box, "big")
    async with box.client() as client:
        with pytest.raises(HoldfastError, match=r"The result of box://big has 170\d+ bytes; .*\(-32603\)"):
            await client.read_resource("box://big")

    assert (failure["code"], failure["hint"][:12]) == ("TOO_LARGE", "Ask for less")
    assert [record.getMessage()[:27] for record in caplog.records] == [
        "the result of big is too la",
        "the result of box://big is ",
    ]


async def test_every_exception_of_a_handler_is_answered(caplog: pytest.LogCaptureFixture):
    box = Toolbox("box")
    for error in (KeyboardInterrupt, GeneratorExit, SystemExit, StopIteration, BaseException):
        box.tool(name=f"sync_{error.__name__}")(make_crash(error))
        box.tool(name=f"async_{error.__name__}")(make_async_crash(error))

    found = {name: (await fail(box, name))["code"] for name in box.tools}

    assert len(found) == 10
    assert set(found.values()) == {"INTERNAL_ERROR"}
    assert len(caplog.records) == 10


async def test_a_traceback_in_the_log_begins_with_the_authors_code(caplog: pytest.LogCaptureFixture):
    box = Toolbox("box")

    @box.tool
    def parse(text: str) -> int:
        """Parse a number."""
        return int(text)

    await fail(box, "parse", {"text": "one"})
    (record,) = caplog.records
    logged = logging.Formatter().format(record)

    assert "ValueError: invalid literal" in logged
    assert logged.count('  File "') == 1
    assert __file__ in logged


@pytest.mark.parametrize("name", ["list_", "open_", "_x", "a" * 128])
async def test_names_of_python_functions_are_names_of_tools(name: str):
    box = Toolbox("box")
    box.tool(name=name)(add)
    box.prompt(name=name)(lambda: "hello")

    async with box.client() as client:
        assert (await client.call(name, {"first": 1, "second": 2})).data["result"] == 3
        assert [prompt["name"] for prompt in await client.list_prompts()] == [name]


async def test_objects_with_call_and_partials_are_tools_with_their_own_description():
    box = Toolbox("box", envelope="meta")
    box.tool(name="plus_one")(Adder())
    box.tool(name="plus_two")(functools.partial(add, 2))

    async with box.client() as client:
        described = [(tool["name"], tool["description"]) for tool in await client.list_tools()]
        results = [
            (await client.call("plus_one", {"number": 1})).text,
            (await client.call("plus_two", {"second": 1})).text,
        ]

    assert described == [("plus_one", "Add one."), ("plus_two", "Add two numbers.")]
    assert results == ["2", "3"]


def _literal(choice: str) -> str:
    """A class is not a value."""
    return choice


_literal.__annotations__["choice"] = cast("Any", Literal)["a", Item]


def _number() -> int:
    """A number is no message."""
    return 1


def _numbers() -> list[int]:
    """Numbers are no messages."""
    return [1]


async def _lifespan() -> AsyncIterator[None]:
    yield None


def _unknown_type(number: "Missing") -> int:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
    """Its type is imported for the type checker only."""
    return 1


def _guard() -> bool:
    return True


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda box: box.tool(_literal), "Literal may only contain"),
    (lambda box: box.prompt(_number), "it returns int. Return a str, a Message"),
    (lambda box: box.prompt(_numbers), "Return a str, a Message"),
    (lambda box: box.http_app(auth=lambda: "ann"), "`auth` must take one parameter, the headers"),
    (
        lambda box: Toolbox("box", lifespan=cast("Any", _lifespan)),
        "A lifespan must take one parameter, the box",
    ),
    (lambda box: box.tool(guards=[_guard])(add), "A guard of 'add' must take one parameter, the call"),
    (lambda box: box.observe(lambda: None), "An observer must take one parameter, the observation"),
    (lambda box: box.tool(Adder()), "has no name: write @box.tool(name=…)"),
    (
        lambda box: box.tool(name="a" * 129)(add),
        "(129 characters) is not a valid tool name: use 1 to 128",
    ),
    (lambda box: box.tool(name="a b")(add), "'a b' is not a valid tool name: use 1 to 128 letters"),
    (lambda box: box.tool(3), "A tool must be a function, not a int"),
    (lambda box: box.tool(_unknown_type), "not only in `if TYPE_CHECKING:`"),
    (lambda box: box.tool(output_schema={})(add), "The return type of the function says"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_in_a_definition_is_refused_with_what_is_expected(
    mistake: Callable[[Any], object], message: str
):
    with pytest.raises(HoldfastError) as refused:
        mistake(Toolbox("box"))

    assert message in refused.value.message
    assert ".." not in refused.value.message


def test_a_method_of_fastmcp_is_answered_with_what_to_write():
    with pytest.raises(AttributeError, match=r"has no attribute 'run'\. Write: box\.main\(\)"):
        cast("Any", Toolbox("box")).run()


async def test_a_function_that_makes_a_toolbox_can_use_its_local_types_in_annotations_that_are_text():
    def make_box() -> Toolbox:
        box = Toolbox("box", envelope="meta")

        @dataclass
        class Pool:
            size: int = 3

        def get_pool() -> Pool:
            return Pool()

        @box.tool  # as with `from __future__ import annotations`
        def size(pool: "Annotated[Pool, Given(get_pool)]", add: "int" = 0) -> "int":  # pyright: ignore[reportUnusedFunction]
            """Return the size."""
            return pool.size + add

        return box

    async with make_box().client() as client:
        assert (await client.call("size", {"add": 1})).text == "4"


def test_messages_of_every_kind_are_return_types_of_prompts():
    box = Toolbox("box")

    def several() -> "list[Message | str] | Message | tuple[str, ...]":
        return "hello", "you"

    box.prompt(several)

    assert box.manifest()["prompts"][0]["name"] == "several"


async def test_an_option_that_is_none_is_left_out():
    box = Toolbox("box", envelope="meta")

    @box.tool
    def who(call: Call) -> str:
        """Who calls?"""
        return "anonymous" if call.session is None else "a session"

    async with box.client(trust=None, workspace=None) as client:  # pyright: ignore[reportArgumentType]
        assert (await client.call("who")).text == "anonymous"
    with pytest.raises(HoldfastError, match='`era` must be "modern" or "handshake"'):
        async with box.client(era="old"):  # pyright: ignore[reportArgumentType]
            pass


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"color": "green"}, "color"),
        ({"items": [{"color": "green"}]}, "items[0].color"),
        ({"by": {"x": "green"}}, "by[...]"),
    ],
)
async def test_a_bad_choice_is_answered_with_the_choices_wherever_it_is(
    arguments: dict[str, Any], field: str
):
    box = Toolbox("box")

    @box.tool
    def paint(
        color: Color | None = None, items: list[Item] | None = None, by: dict[str, Color] | None = None
    ) -> str:
        """Paint."""
        return "painted"

    (issue,) = (await fail(box, "paint", arguments))["details"]["issues"]

    assert (issue["field"], issue["message"]) == (
        field,
        "Invalid enum value 'green'. Choose one of: red, blue.",
    )


async def test_the_error_of_a_prompt_says_what_is_wrong():
    box = Toolbox("box")

    @box.prompt
    def praise(style: Literal["short", "long"]) -> str:
        """Praise."""
        return style

    async with box.client() as client:
        with pytest.raises(
            HoldfastError, match=r"style: Invalid enum value 'loud'\. Choose one of: short, long"
        ):
            await client.get_prompt("praise", {"style": "loud"})


async def test_hints_fit_what_happened():
    box = Toolbox("box")

    @box.tool(deadline=0.01)
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    @box.tool
    async def ask(call: Call) -> str:
        """Ask for a nested type."""
        return str(await call.ask("Which?", dict[str, Item]))

    @box.tool
    async def age(call: Call) -> int:
        """Ask for an age."""
        return await call.ask("How old?", Annotated[int, Meta(ge=18)])

    async with box.client(elicit=lambda question: {"value": 3}) as client:
        hints = {name: (await client.call(name)).envelope["hint"] for name in ("wait", "ask", "age")}

    assert hints == {
        "wait": "The tool's server sets this limit. Request less; the tool's author can raise its `deadline`.",
        "ask": "Correct the type that the tool passes to call.ask.",
        "age": "Call again, and answer the question as the message says.",
    }


async def test_what_is_wrong_with_an_answer_is_said_once():
    box = Toolbox("box", envelope="meta")

    @box.tool
    async def age(call: Call) -> int:
        """Ask for an age."""
        return await call.ask("How old?", Annotated[int, Meta(ge=18)])

    async with box.client(elicit=lambda question: {"value": 3}) as client:
        text = (await client.call("age")).text

    assert text.count(">= 18") == 1


def test_no_hint_uses_the_word_peer():
    from holdfast.model import codes

    assert [code.name for code in codes.registered() if "peer" in code.hint.lower()] == []


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Log only errors."""
    with caplog.at_level(logging.ERROR):
        yield
