"""Every style of declaring an argument is understood, or refused when the tool is defined."""

import dataclasses
import enum
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NewType, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest
import typing_extensions
from msgspec import UNSET
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Header, Meta, Toolbox, define_tool
from holdfast.toolkit.argument_schema import BadArgumentsError
from holdfast.toolkit.tool import Tool
from tests.toolkit.server_process import ROOT

PAGE = ROOT / "docs" / "tool-arguments.md"
REQUIRED = object()
"""Instead of a default: callers must send the argument."""


class Depends:
    """As in FastAPI and FastMCP."""

    def __init__(self, provider: Callable[..., Any]) -> None:
        self.provider = provider


class Query(FieldInfo):  # type: ignore[misc]  # pyright: ignore
    """As in FastAPI: a Field that is read from elsewhere."""


class Pool:
    """Something that is not JSON."""


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Limited:
    x: Annotated[int, pydantic.Field(ge=0)]


@dataclasses.dataclass(eq=False)
class Basket:
    """Hashed by its identity, but its items can change."""

    items: list[str] = dataclasses.field(default_factory=list[str])

    def append(self, item: str) -> None:
        self.items.append(item)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)


class Options(TypedDict, total=False):
    depth: int


class Settings(typing_extensions.TypedDict):
    depth: typing_extensions.NotRequired[Annotated[int, pydantic.Field(ge=0)]]


Positive = NewType("Positive", Annotated[int, pydantic.Field(ge=0)])  # pyright: ignore
Natural = typing_extensions.TypeAliasType("Natural", Annotated[int, Meta(ge=0)])
Supply = typing_extensions.TypeAliasType("Supply", Annotated[dict[str, int], Depends(dict)])
Tree = typing_extensions.TypeAliasType("Tree", "dict[str, Tree]")


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^[a-z]+$", max_length=10)


class Mixed(msgspec.Struct):
    x: Annotated[int, pydantic.Field(ge=0)]


class Unread(pydantic.BaseModel):
    x: Annotated[int, Meta(ge=0)]


@dataclasses.dataclass
class Computed:
    x: int
    doubled: int = dataclasses.field(init=False, default=0)


class Corner(NamedTuple):
    x: Annotated[int, pydantic.Field(ge=0)]


class Shouting(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^(a+)+$", max_length=10)


def make_pool() -> Pool:
    return Pool()


NAMESPACE: dict[str, Any] = {
    **vars(typing),
    **{name: value for name, value in globals().items() if not name.startswith("__")},
    "Field": pydantic.Field,
    "Doc": typing_extensions.Doc,
    "Ge": annotated_types.Ge,
    "StringConstraints": pydantic.StringConstraints,
    "SkipJsonSchema": SkipJsonSchema,
    "Final": typing.Final,
    "conint": pydantic.conint,
    "WithJsonSchema": pydantic.WithJsonSchema,
    "field": dataclasses.field,
    "Header": Header,
    "Meta": Meta,
    "UnsetType": msgspec.UnsetType,
    "Context": type("Context", (), {"__module__": "fastmcp.server.context"}),
}


@dataclasses.dataclass(frozen=True)
class Style:
    """A style that is understood: what clients see, what the handler gets, and a value that is not accepted."""

    code: str
    schema: Any
    default: Any
    sent: Any
    got: Any
    wrong: Any


NUMBER = {"type": "integer"}
AT_LEAST_0 = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
WORDS = {"type": "array", "items": {"type": "string"}}
WORD = {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}

UNDERSTOOD = [
    Style("a: int", NUMBER, REQUIRED, 2, 2, "2"),
    Style("a: int = 3", {**NUMBER, "default": 3}, 3, 2, 2, "2"),
    Style("a: int | None = None", {"anyOf": [NUMBER, {"type": "null"}], "default": None}, None, None, None, "2"),
    Style("a: Optional[int] = None", {"anyOf": [NUMBER, {"type": "null"}], "default": None}, None, 2, 2, "2"),
    Style("a: int = None", {"anyOf": [NUMBER, {"type": "null"}], "default": None}, None, None, None, "2"),
    Style("a: Annotated[int, Meta(ge=0)] = None",
          {"anyOf": [AT_LEAST_0, {"type": "null"}], "default": None}, None, None, None, -2),
    Style('a: Annotated[int, Meta(examples=[2])] = 3', {**NUMBER, "examples": [2], "default": 3}, 3, 2, 2, "2"),
    Style("a: Annotated[int, WithJsonSchema({'title': 'A'})] = None",
          {"title": "A", "default": None}, None, None, None, "x"),
    Style('a: Annotated[int, "How many."]', {**NUMBER, "description": "How many."}, REQUIRED, 2, 2, "2"),
    Style('a: Annotated[int, Doc("How many.")]', {**NUMBER, "description": "How many."}, REQUIRED, 2, 2, "2"),
    Style("a: Annotated[int, Meta(ge=0)]", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: Annotated[int, Meta(ge=0)] = 3", {**AT_LEAST_0, "default": 3}, 3, 2, 2, -2),
    Style("a: Annotated[int, Meta(ge=0)] = -1", {**AT_LEAST_0, "default": -1}, -1, 2, 2, -2),
    Style('a: Annotated[str, Header("Region")]', {**TEXT, "x-mcp-header": "Region"}, REQUIRED, "eu", "eu", 2),
    Style("a: int = Field(ge=0)", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: int = Field(..., ge=0)", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: int = Field(3, ge=0)", {**AT_LEAST_0, "default": 3}, 3, 2, 2, -2),
    Style("a: int = Field(default=3, ge=0)", {**AT_LEAST_0, "default": 3}, 3, 2, 2, -2),
    Style("a: int = Field(None, ge=0)", {"anyOf": [AT_LEAST_0, {"type": "null"}], "default": None}, None, None, None, -2),
    Style('a: int = Field(description="How many.")', {**NUMBER, "description": "How many."}, REQUIRED, 2, 2, "x"),
    Style("a: list[str] = Field(default_factory=list)", WORDS, [], ["b"], ["b"], [2]),
    Style("a: Annotated[int, Field(ge=0)]", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: Annotated[int, Field(ge=0)] = 3", {**AT_LEAST_0, "default": 3}, 3, 2, 2, -2),
    Style("a: Annotated[int, Field(ge=0, default=3)]", {**AT_LEAST_0, "default": 3}, 3, 2, 2, -2),
    Style("a: Annotated[int, Field(le=9)] = Field(3, ge=0)",
          {**AT_LEAST_0, "maximum": 9, "default": 3}, 3, 2, 2, 10),
    Style('a: Annotated[int, "How many.", Field(ge=0)]',
          {**AT_LEAST_0, "description": "How many."}, REQUIRED, 2, 2, -2),
    Style("a: Annotated[int, Meta(le=9), Field(ge=0)]", {**AT_LEAST_0, "maximum": 9}, REQUIRED, 2, 2, 10),
    Style("a: Annotated[int, Ge(0)]", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: conint(ge=0)", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: Annotated[int, Field(ge=0)] | None = None",
          {"anyOf": [AT_LEAST_0, {"type": "null"}], "default": None}, None, 2, 2, -2),
    Style('a: Annotated[str, Meta(pattern="^[a-z]+$", max_length=9)]', WORD, REQUIRED, "b", "b", "2"),
    Style('a: Annotated[str, StringConstraints(pattern="^[a-z]+$", max_length=9)]', WORD, REQUIRED, "b", "b", "2"),
    Style('a: str = Field(pattern="^[a-z]+$", max_length=9)', WORD, REQUIRED, "b", "b", "2"),
    Style("a: list[str] = []", {**WORDS, "default": []}, [], ["b"], ["b"], [2]),
    Style("a: dict[str, int] = {}",
          {"type": "object", "additionalProperties": NUMBER, "default": {}}, {}, {"b": 2}, {"b": 2}, {"b": "2"}),
    Style("a: list[str] = field(default_factory=list)", WORDS, [], ["b"], ["b"], [2]),
    Style("a: int = msgspec.field(default=3)", {**NUMBER, "default": 3}, 3, 2, 2, "2"),
    Style("a: int | UnsetType = UNSET", NUMBER, UNSET, 2, 2, "2"),
    Style('a: Literal["b", "c"] = "b"', {"enum": ["b", "c"], "type": "string", "default": "b"}, "b", "c", "c", "d"),
    Style("a: Size = Size.SMALL", {"$ref": "#/$defs/Size", "default": "s"}, Size.SMALL, "l", Size.LARGE, "x"),
    Style("a: Point = Point(1)",
          {"$ref": "#/$defs/Point", "default": {"x": 1, "y": 0}}, Point(1), {"x": 2}, Point(2), {"y": 2}),
    Style("a: Options", {"$ref": "#/$defs/Options"}, REQUIRED, {"depth": 2}, {"depth": 2}, {"depth": "2"}),
    Style("a: Settings", {"type": "object", "properties": {"depth": AT_LEAST_0}},
          REQUIRED, {"depth": 2}, {"depth": 2}, {"depth": -2}),
    Style("a: Positive", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: Natural", AT_LEAST_0, REQUIRED, 2, 2, -2),
    Style("a: Tree", {"$ref": "#/$defs/Tree"}, REQUIRED, {"b": {}}, {"b": {}}, {"b": 2}),
    Style('a: Path = Path(".")', {**TEXT, "format": "path", "default": "."}, Path(), "b", Path("b"), 2),
    Style("a: Limited", {"type": "object", "properties": {"x": AT_LEAST_0}, "required": ["x"]},
          REQUIRED, {"x": 2}, Limited(2), {"x": -2}),
    Style("a: Person", { "type": "object", "properties": {
        "name": {**WORD, "maxLength": 10}}, "required": ["name"]},
          REQUIRED, {"name": "b"}, Person(name="b"), {"name": "2"}),
    Style("a: Corner", {"type": "array", "prefixItems": [AT_LEAST_0], "minItems": 1, "maxItems": 1},
          REQUIRED, [2], Corner(2), [-2]),
    Style("a: dict[str, object]", {"type": "object"}, REQUIRED, {"b": [2]}, {"b": [2]}, 2),
    Style("a: dict", {"type": "object"}, REQUIRED, {"b": [2]}, {"b": [2]}, 2),
]  # fmt: skip

REFUSED = {
    "a": "its parameter 'a' has no type annotation.",
    "self": "To use a method, make the object first: box.add(define_tool(thing.method)).",
    "*a: int": "'*a: int' cannot be passed by keyword.",
    "**a: int": "'**a: int' cannot be passed by keyword.",
    "a: int, /": "'a: int' cannot be passed by keyword.",
    "a: int = ...": "is `...`. Leave it out to make the argument required.",
    'a: int = "3"': "is not of its type: Expected `int`, got `str`.",
    "a: dict = Depends(make_pool)": "is a Depends, which is not a JSON value. For a value that callers do not send,",
    "a: Pool = Depends(make_pool)": "Pool is not a JSON type. Use another type. For a value that callers do not send,",
    "a: Annotated[dict, Depends(make_pool)]": "the toolkit does not know Depends in its annotation.",
    "a: Supply": "the toolkit does not know Depends in its annotation.",
    "a: str = Query()": "is a Query, which is not a JSON value.",
    "a: Annotated[str, Query()]": "the toolkit does not know Query in its annotation.",
    "a: Annotated[int, {'ge': 0}]": "the toolkit does not know dict in its annotation.",
    'a: int = Field(alias="b")': "has alias='b'. Rename the parameter instead.",
    'a: int = msgspec.field(name="b")': "has name='b'. Rename the parameter instead.",
    "a: int = Field(default_factory=lambda data: 3)": "has a default_factory with a parameter.",
    'a: str = Field(pattern="^[a-z]+$")': "The pattern of 'a' of 'handler' needs a max_length of at most 1000.",
    'a: str = Field(pattern="^(a+)+$", max_length=9)': "could take forever",
    "a: Shouting": "could take forever",
    "a: Mixed": "it mixes types of msgspec and pydantic.",
    "a: Unread": "a field has a Meta, which pydantic does not read. Use Field there.",
    "a: Computed": "the field 'doubled' of Computed has init=False, so no caller may set it. Use a property in its place.",
    "a: list[Computed]": "the field 'doubled' of Computed has init=False",
    "a: Callable[[], int]": "Callable is not a JSON type.",
    "a: type[int]": "type is not a JSON type.",
    "a: Final[int] = 3": "Final is for variables. Leave it out.",
    "a: Annotated[int, SkipJsonSchema()] = 3": "it is left out of the JSON Schema, so no caller would know of it.",
    "a: Pool": "Pool is not a JSON type.",
    "a: list[Pool]": "Pool is not a JSON type.",
    "a: Context": "To get the call, use `call: Call` from holdfast.toolkit.",
}


def tool_of(code: str) -> Tool:
    namespace = dict(NAMESPACE)
    exec(f"def handler({code}):\n    'Handle.'\n    return a\n", namespace)
    return define_and_add(namespace["handler"])


def define_and_add(handler: Callable[..., Any]) -> Tool:
    return Toolbox("box").add(define_tool(handler))


def _item_type(size: Any) -> type[pydantic.BaseModel]:
    return pydantic.create_model("Item", size=(size, ...))


def call(tool: Tool, arguments: dict[str, Any]) -> Any:
    """What the handler gets."""
    return tool.definition.handler(**tool.signature.arguments.parse(msgspec.json.encode(arguments)))


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize("style", UNDERSTOOD, ids=lambda style: style.code)
def test_style_is_understood(style: Style):
    tool = tool_of(style.code)

    assert tool.schema["properties"] == {"a": style.schema}
    assert tool.schema.get("required", []) == (["a"] if style.default is REQUIRED else [])
    assert call(tool, {"a": style.sent}) == style.got
    with pytest.raises(BadArgumentsError):
        call(tool, {"a": style.wrong})
    if style.default is REQUIRED:
        with pytest.raises(BadArgumentsError):
            call(tool, {})
    else:
        assert call(tool, {}) == style.default


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(("code", "reason"), REFUSED.items())
def test_style_is_refused_when_the_tool_is_defined(code: str, reason: str):
    with pytest.raises(HoldfastError) as refused:
        tool_of(code)

    assert refused.value.code is codes.BAD_TOOL
    assert reason in refused.value.message


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    "code",
    [
        "a: list[str] = []",
        "a: list[str] = Field([])",
        "a: list[str] = Field(default_factory=list)",
        "a: Basket = Basket()",
    ],
)
def test_default_that_a_call_changes_is_whole_for_the_next_call(code: str):
    tool = tool_of(code)

    call(tool, {}).append("of another session")

    assert [*call(tool, {})] == []


@pytest.mark.promise("KIT-20")
def test_types_with_one_name_keep_their_own_schemas():
    names = {"First": _item_type(int), "Second": _item_type(str)}
    namespace = dict(NAMESPACE) | names
    exec("def handler(a: list[First], b: list[Second]):\n    'Handle.'\n", namespace)

    schema = define_and_add(namespace["handler"]).schema

    definitions = typing.cast("dict[str, Any]", schema["$defs"])
    items = [
        definitions[part["items"]["$ref"].rpartition("/")[2]]["properties"]["size"]
        for part in typing.cast("dict[str, Any]", schema["properties"]).values()
    ]
    assert items == [NUMBER, TEXT]


@pytest.mark.promise("KIT-20")
def test_page_about_arguments_lists_exactly_these_styles():
    styles = PAGE.read_text(encoding="utf-8").partition("## The call")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \|$", styles, re.MULTILINE)
    listed = {code.replace(r"\|", "|"): meaning.startswith("refused") for code, meaning in rows}

    assert listed == {style.code: False for style in UNDERSTOOD} | dict.fromkeys(REFUSED, True)
