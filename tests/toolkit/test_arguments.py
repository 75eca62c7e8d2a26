"""The arguments of a call are of their exact types, or every issue with them is told."""

import dataclasses
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Meta, Toolbox, tool
from holdfast.toolkit.arguments import BadArguments
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


def plain(
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
    """Take everything."""


def foreign(person: Person, ages: Annotated[list[int], pydantic.Field(max_length=2)] = []) -> None:  # noqa: B006
    """Take what pydantic describes."""


def made(handler: Callable[..., Any]) -> Tool:
    return Toolbox("box").add(tool(handler))


def parsed(handler: Callable[..., Any], **given: Any) -> dict[str, Any]:
    return made(handler).signature.arguments.parse(msgspec.json.encode(given))


def issues(handler: Callable[..., Any], **given: Any) -> list[tuple[Any, ...]]:
    with pytest.raises(BadArguments) as bad:
        parsed(handler, **given)
    return [(issue["field"], issue["code"]) for issue in bad.value.issues]


@pytest.mark.promise("KIT-01")
def test_arguments_arrive_as_the_types_of_the_signature():
    assert parsed(
        plain,
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
def test_every_issue_names_its_field_and_kind(given: dict[str, Any], expected: list[tuple[str, str]]):
    assert issues(plain, **given) == expected


@pytest.mark.promise("KIT-01", "KIT-04")
def test_an_author_may_speak_pydantic():
    assert parsed(foreign, person={"name": "Ann", "age": 3}, ages=[1]) == {
        "person": Person(name="Ann", age=3),
        "ages": [1],
    }
    assert issues(foreign, person={"name": "", "age": "x"}, ages=[1, 2, 3]) == [
        ("person.name", "string_too_short"),
        ("person.age", "int_parsing"),
        ("ages", "too_long"),
    ]
    assert issues(foreign) == [("person", "missing")]


@pytest.mark.promise("KIT-01")
def test_the_schema_of_pydantic_types_is_pydantics():
    assert made(foreign).schema == {
        "type": "object",
        "properties": {
            "person": {
                "title": "Person",
                "type": "object",
                "properties": {
                    "name": {"title": "Name", "type": "string", "minLength": 1},
                    "age": {"title": "Age", "type": "integer"},
                },
                "required": ["name", "age"],
            },
            "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "default": []},
        },
        "required": ["person"],
        "additionalProperties": False,
    }


def test_pydantic_is_not_imported_for_those_who_do_not_speak_it():
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from holdfast.toolkit import Toolbox\n"
        "box = Toolbox('b')\n"
        "@box.tool()\n"
        "def f(a: int, b: list[str] | None = None) -> None: 'F.'\n"
        "box.manifest()\n"
        "print([name for name in ('pydantic', 'uvicorn', 'mcp', 'cryptography', 'anyio') if name in sys.modules])\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.promise("CTX-06")
@pytest.mark.parametrize(
    "name", ["session_id", "sessionId", "SESSION-ID", "Ｓession＿id", "trust", "Trust_Level"]
)
def test_arguments_named_like_the_context_are_dropped_where_the_tool_has_none_such(name: str):
    assert parsed(plain, text="t", **{name: "direct"}) == {"text": "t"}


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
    ],
)
def test_a_pattern_that_could_take_for_ever_fails_at_boot(pattern: str):
    def search(text: Annotated[str, Meta(pattern=pattern, max_length=100)]) -> None:
        """Search."""

    with pytest.raises(HoldfastError) as refused:
        made(search)

    assert refused.value.code is codes.BAD_TOOL
    assert "could take for ever" in refused.value.message


@pytest.mark.parametrize(
    "pattern", [r"^[a-z0-9-]+$", r"^\d{4}-\d{2}-\d{2}$", r"^(red|blue)$", r"^[A-Z]+\d*$"]
)
def test_a_harmless_pattern_is_taken_with_a_length_beside_it(pattern: str):
    def search(text: Annotated[str, Meta(pattern=pattern, max_length=100)]) -> None:
        """Search."""

    def endless(text: Annotated[str, Meta(pattern=pattern)]) -> None:
        """Search in anything."""

    made(search)
    with pytest.raises(HoldfastError, match="needs a max_length"):
        made(endless)
