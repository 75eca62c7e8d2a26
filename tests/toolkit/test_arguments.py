"""Arguments are decoded to their types, or every issue with them is reported."""

import dataclasses
import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import jsonschema_rs
import msgspec
import pydantic
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Meta, Toolbox, define_tool
from holdfast.toolkit.argument_schema import BadArgumentsError
from holdfast.toolkit.tool import Tool


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    depth: int


class Shape(msgspec.Struct):
    name: str
    sides: int


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    age: int


def takes_everything(
    text: str,
    *,
    number: int = 1,
    ratio: float = 0.5,
    flag: bool = False,
    when: date | None = None,
    key: UUID | None = None,
    points: list[Point] = [],  # noqa: B006
    shape: Shape | None = None,
    options: Options = {},  # noqa: B006
    mode: Literal["a", 1] = "a",
    size: Annotated[int, Meta(ge=0, lt=10)] = 0,
) -> None:
    """Take arguments of all types."""


def takes_pydantic(person: Person, ages: Annotated[list[int], pydantic.Field(max_length=2)] = []) -> None:  # noqa: B006
    """Take arguments with pydantic types."""


def tool_of(handler: Callable[..., Any]) -> Tool:
    return Toolbox("box").add(define_tool(handler))


def parse(handler: Callable[..., Any], **given: Any) -> dict[str, Any]:
    return tool_of(handler).signature.arguments.parse(msgspec.json.encode(given))


def issues(handler: Callable[..., Any], **given: Any) -> list[tuple[Any, ...]]:
    with pytest.raises(BadArgumentsError) as bad:
        parse(handler, **given)
    return [(issue["field"], issue["code"]) for issue in bad.value.issues]


def _is_accepted(tool: Tool, raw: bytes) -> bool:
    try:
        tool.signature.arguments.parse(raw)
    except BadArgumentsError:
        return False
    return True


@pytest.mark.promise("KIT-01")
def test_arguments_are_decoded_to_the_types_of_the_signature():
    assert parse(
        takes_everything,
        text="t",
        when="2026-11-15",
        key="12345678-1234-5678-1234-567812345678",
        points=[{"x": 1}, {"x": 2, "y": 3}],
        shape={"name": "square", "sides": 4},
        options={"depth": 2},
        mode=1,
    ) == {
        "text": "t",
        "when": date(2026, 11, 15),
        "key": UUID("12345678-1234-5678-1234-567812345678"),
        "points": [Point(1), Point(2, 3)],
        "shape": Shape("square", 4),
        "options": {"depth": 2},
        "mode": 1,
    }


@pytest.mark.promise("KIT-01")
def test_a_whole_number_is_an_integer_as_in_json_schema():
    raw = (
        b'{"text": "2.0", "number": 2.0, "size": 9.0, "ratio": 3.0, "points": [{"x": 2e3, "y": -0.0}],'
        b' "options": {"depth": 1.0}}'
    )
    tool = tool_of(takes_everything)
    schema = jsonschema_rs.validator_for(tool.schema)

    values = tool.signature.arguments.parse(raw)
    assert values == {
        "text": "2.0",
        "number": 2,
        "size": 9,
        "ratio": 3.0,
        "points": [Point(2000, 0)],
        "options": {"depth": 1},
    }
    assert [type(values[name]) for name in ("number", "size", "ratio")] == [int, int, float]
    for number, is_integer in ((b"2.0", True), (b"2e3", True), (b"2.5", False), (b'"2.0"', False)):
        given = b'{"text": "", "number": %s}' % number
        assert schema.is_valid(json.loads(given)) is is_integer
        assert _is_accepted(tool, given) is is_integer


@pytest.mark.promise("KIT-04")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [("text", "missing")]),
        ({"text": 1}, [("text", "type")]),
        ({"text": "t", "number": "1"}, [("number", "type")]),
        ({"text": "t", "number": 1.5, "flag": 1}, [("number", "type"), ("flag", "type")]),
        ({"text": "t", "size": 10}, [("size", "value")]),
        ({"text": "t", "mode": "b"}, [("mode", "choice")]),
        ({"text": "t", "when": "soon"}, [("when", "value")]),
        ({"text": "t", "points": [{"x": 1}, {"y": 2}]}, [("points[1]", "missing")]),
        ({"text": "t", "points": [{"x": "1"}]}, [("points[0].x", "type")]),
        ({"text": "t", "nope": 1}, [("nope", "unknown")]),
        ({"txet": "t"}, [("text", "missing"), ("txet", "unknown")]),
    ],
)
def test_every_issue_names_its_field_and_code(given: dict[str, Any], expected: list[tuple[str, str]]):
    assert issues(takes_everything, **given) == expected


@pytest.mark.promise("KIT-01", "KIT-04")
def test_pydantic_types_are_validated_by_pydantic():
    assert parse(takes_pydantic, person={"name": "Ann", "age": 3}, ages=[1]) == {
        "person": Person(name="Ann", age=3),
        "ages": [1],
    }
    assert issues(takes_pydantic, person={"name": "", "age": "x"}, ages=[1, 2, 3]) == [
        ("person.name", "string_too_short"),
        ("person.age", "int_parsing"),
        ("ages", "too_long"),
    ]
    assert issues(takes_pydantic) == [("person", "missing")]


@pytest.mark.promise("KIT-04")
def test_issues_of_pydantic_and_other_arguments_are_reported_together():
    def takes_both(number: int, person: Person) -> None:
        """Take one argument of each kind."""

    assert issues(takes_both, number="x", person={"name": "Ann"}, nope=1) == [
        ("number", "type"),
        ("nope", "unknown"),
        ("person.age", "missing"),
    ]


@pytest.mark.promise("KIT-01")
def test_schema_of_pydantic_types_comes_from_pydantic():
    assert tool_of(takes_pydantic).schema == {
        "type": "object",
        "properties": {
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "age": {"type": "integer"},
                },
                "required": ["name", "age"],
            },
            "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "default": []},
        },
        "required": ["person"],
        "additionalProperties": False,
    }


def test_pydantic_is_imported_only_for_pydantic_types():
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from holdfast.toolkit import Toolbox\n"
        "box = Toolbox('b')\n"
        "@box.tool()\n"
        "def f(a: int, b: list[str] | None = None) -> None: 'F.'\n"
        "box.manifest()\n"
        "print([name for name in ('pydantic', 'uvicorn', 'mcp', 'cryptography', 'anyio', 'holdfast.model.event', 'holdfast.toolkit.sampling') if name in sys.modules])\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.promise("CTX-06")
@pytest.mark.parametrize(
    "name", ["session_id", "sessionId", "SESSION-ID", "Ｓession＿id", "trust", "Trust_Level"]
)
def test_unknown_arguments_named_like_the_context_are_dropped(name: str):
    assert parse(takes_everything, text="t", **{name: "direct"}) == parse(takes_everything, text="t")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(a*)*b$",
        r"(x+x+)+y",
        r"^(a|aa)+$",
        r"^([a-z]+)*\d$",
        r"^(\w+\s?)*$",
        r"(?:a{0,100}){0,100}b",
        r"(a)\1+",
        r"(?>(a+)+b)",
        r"(?:(a+)+b)++",
    ],
)
def test_pattern_that_could_take_forever_raises(pattern: str):
    def search(text: Annotated[str, Meta(pattern=pattern, max_length=100)]) -> None:
        """Search."""

    with pytest.raises(HoldfastError) as refused:
        tool_of(search)

    assert refused.value.code is codes.BAD_TOOL
    assert "could take forever" in refused.value.message


class Node(msgspec.Struct):
    name: Annotated[str, Meta(pattern="^[a-z]+$", max_length=10)]
    children: list["Node"] = []


class UnsafeNode(msgspec.Struct):
    children: list["UnsafeNode"]
    name: Annotated[str, Meta(pattern="^(a+)+$", max_length=10)]


def test_patterns_of_a_type_that_contains_itself_are_checked():
    def safe(node: Node) -> None:
        """Take a tree."""

    def unsafe(node: UnsafeNode) -> None:
        """Take a tree."""

    assert parse(safe, node={"name": "a", "children": [{"name": "b"}]}) == {"node": Node("a", [Node("b")])}
    with pytest.raises(HoldfastError, match="could take forever"):
        tool_of(unsafe)


@pytest.mark.parametrize(
    "pattern", [r"^[a-z0-9-]+$", r"^\d{4}-\d{2}-\d{2}$", r"^(red|blue)$", r"^[A-Z]+\d*$"]
)
def test_safe_pattern_with_a_max_length_is_accepted(pattern: str):
    def search(text: Annotated[str, Meta(pattern=pattern, max_length=100)]) -> None:
        """Search."""

    def endless(text: Annotated[str, Meta(pattern=pattern)]) -> None:
        """Search in text of any length."""

    tool_of(search)
    with pytest.raises(HoldfastError, match="needs a max_length"):
        tool_of(endless)


@dataclasses.dataclass(frozen=True)
class Plant:
    name: str
    count: int = 1
    tags: list[str] = dataclasses.field(default_factory=list[str])
    parents: "tuple[Plant, ...]" = ()


def echo(plants: dict[str, list[Plant]]) -> list[Plant]:
    """Return the plants."""
    return plants["all"]


@pytest.mark.anyio
async def test_a_dataclass_argument_has_its_defaults_when_it_is_sent_back():
    box = Toolbox("box", envelope="meta")
    box.tool(echo)

    async with box.client() as client:
        sent = [{"name": "rose", "parents": [{"name": "dog-rose", "count": 2}]}]
        answer = await client.call("echo", {"plants": {"all": sent}})

    parent: dict[str, Any] = {"name": "dog-rose", "count": 2, "tags": [], "parents": []}
    assert answer.text == json.dumps(
        [{"name": "rose", "count": 1, "tags": [], "parents": [parent]}], separators=(",", ":")
    )


def test_a_bad_key_of_a_dict_is_an_issue_of_the_dict():
    def sort(words: dict[str, dict[int, str]]) -> None:
        """Sort."""

    message = "A key of this object: expected `int`, got `str`."
    with pytest.raises(BadArgumentsError) as caught:
        parse(sort, words={"a": {"b": "c"}})

    assert caught.value.issues == [{"field": "words[...]", "code": "type", "message": message}]
