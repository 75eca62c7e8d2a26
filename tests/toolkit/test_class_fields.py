"""The fields of the classes in an argument or a result: what their annotations and defaults say is understood, or refused."""

import dataclasses
import enum
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
import typing_extensions

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Header, Meta, Toolbox, ToolDefinition, define_tool
from holdfast.toolkit.tool import Tool

T = TypeVar("T")


class Depends:
    """As in FastAPI and FastMCP."""

    def __init__(self, provider: Callable[..., Any]) -> None:
        self.provider = provider


def make() -> int:
    return 3


def tool_with(kind: Any, returned: Any = str) -> Tool:
    def handler(a: Any) -> Any:
        """Handle."""

    handler.__annotations__.update(a=kind, **{"return": returned})
    definition: ToolDefinition = define_tool(handler)
    return Toolbox("box", envelope="meta").add(definition)


def schema_of_class(schema: Any) -> Any:
    """The schema of the argument, or the definition that it refers to."""
    part = schema["properties"]["a"]
    return schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part


@dataclasses.dataclass
class InDataclass:
    count: Annotated[int, "How many."]


@dataclasses.dataclass
class BesidePydantic:
    count: Annotated[int, "How many."]
    at: Path = Path()


class InTypedDict(TypedDict):
    count: NotRequired[Annotated[int, "How many."]]


class InLimitedTypedDict(typing_extensions.TypedDict):
    count: typing_extensions.NotRequired[Annotated[int, "How many.", pydantic.Field(ge=0)]]


class InStruct(msgspec.Struct, rename="upper"):
    count: Annotated[int, "How many."]


class InModel(pydantic.BaseModel):
    count: Annotated[int, "How many."] = pydantic.Field(alias="COUNT")


class InUnion(msgspec.Struct):
    count: Annotated[int, typing_extensions.Doc("How many.")] | None = None


@dataclasses.dataclass
class InGeneric(Generic[T]):
    count: Annotated[T, "How many."]


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    "kind",
    [
        *(InDataclass, BesidePydantic, InTypedDict, InLimitedTypedDict, InStruct, InModel, InUnion),
        InGeneric[int],
    ],
    ids=str,
)
def test_text_in_the_annotation_of_a_field_is_its_description(kind: Any):
    tool = tool_with(kind, returned=kind)

    fields = schema_of_class(tool.schema)["properties"]
    assert fields.get("count", fields.get("COUNT"))["description"] == "How many."
    assert tool.output_schema is not None
    assert '"description":"How many."' in msgspec.json.encode(tool.output_schema).decode()


class InTuple(NamedTuple):
    amount: Annotated[int, "How many."]
    size: int = 1


@pytest.mark.promise("KIT-20")
def test_text_in_the_annotation_of_a_named_tuple_is_a_description():
    items = schema_of_class(tool_with(InTuple).schema)["prefixItems"]

    assert [item.get("description") for item in items] == ["How many.", None]


class Address(TypedDict):
    street: str
    city: NotRequired[str]
    country: str


@pytest.mark.promise("KIT-21")
def test_fields_of_a_typed_dict_keep_the_order_in_which_they_are_written():
    tool = tool_with(Address, returned=Address)

    schemas: list[Any] = [schema_of_class(tool.schema), tool.output_schema]
    for schema in schemas:
        assert list(schema["properties"]) == ["street", "city", "country"]
        assert schema["required"] == ["street", "country"]


class Visit(msgspec.Struct):
    at: datetime
    until: time | None = None
    price: Decimal | None = None


@pytest.mark.promise("KIT-21")
@pytest.mark.parametrize(
    "kind",
    [
        Visit,
        list[Visit],
        dict[str, Visit],
        tuple[int, Visit],
        int | Visit | None,
        Annotated[Visit, Meta(title="V")],
    ],
    ids=str,
)
def test_formats_of_times_are_in_the_schema_wherever_they_are(kind: Any):
    tool = tool_with(kind, returned=kind)
    definitions: Any = tool.schema["$defs"]
    number_or_text = [{"type": "number"}, {"type": "string", "format": "decimal"}]

    assert definitions["Visit"]["properties"] == {
        "at": {"type": "string", "format": "date-time"},
        "until": {"anyOf": [{"type": "string", "format": "time"}, {"type": "null"}], "default": None},
        "price": {"anyOf": [{"anyOf": number_or_text}, {"type": "null"}], "default": None},
    }
    written = msgspec.json.encode(tool.output_schema).decode()
    assert '"format":"date-time"' not in written, (
        "a result may have no offset, and a client may check formats"
    )
    assert '{"type":"number"}' not in written, "a decimal is sent as text"


class Cat(msgspec.Struct, tag=True):
    born: datetime


class Dog(msgspec.Struct, tag=True):
    born: datetime
    friend: "Cat | Dog | None" = None


@pytest.mark.promise("KIT-21")
def test_formats_of_times_are_in_a_union_of_structs_that_contains_itself():
    definitions: Any = tool_with(int | Cat | Dog | None).schema["$defs"]

    assert [definitions[name]["properties"]["born"] for name in ("Cat", "Dog")] == [
        {"type": "string", "format": "date-time"}
    ] * 2


class Size(enum.Enum):
    SMALL = "s"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@pytest.mark.promise("KIT-21")
def test_enum_of_numbers_and_texts_is_listed():
    tool = tool_with(list[Mixed])

    assert '"enum":[1,"two"]' in msgspec.json.encode(tool.schema).decode()


@dataclasses.dataclass
class Injected:
    a: Annotated[int, Depends(make)] = 3


@dataclasses.dataclass
class Defaulted:
    a: int = Depends(make)  # type: ignore[assignment]  # pyright: ignore


@dataclasses.dataclass
class DefaultedBesidePydantic:
    a: int = Depends(make)  # type: ignore[assignment]  # pyright: ignore
    at: Path = Path()


@dataclasses.dataclass
class OtherType:
    a: int = "3"  # type: ignore[assignment]  # pyright: ignore


@dataclasses.dataclass
class SetItselfBesidePydantic:
    at: Path
    a: int = dataclasses.field(init=False, default=1)


class InjectedStruct(msgspec.Struct):
    a: Annotated[int, Depends(make)]


class DefaultedStruct(msgspec.Struct):
    a: int = Depends(make)  # type: ignore[assignment]  # pyright: ignore


class InjectedDict(TypedDict):
    a: Annotated[int, Depends(make)]


class InjectedTuple(NamedTuple):
    a: Annotated[int, Depends(make)]


class InjectedModel(pydantic.BaseModel):
    a: Annotated[int, Depends(make)] = 3


class DefaultedModel(pydantic.BaseModel):
    a: int = Depends(make)  # type: ignore[assignment]  # pyright: ignore


@dataclasses.dataclass
class InHeader:
    a: Annotated[str, Header("Region")]


@dataclasses.dataclass
class Outer:
    inner: list[Injected]


NOT_KNOWN = "the toolkit does not know Depends in the annotation of the field 'a' of "
NOT_JSON = "is a Depends, which is not a JSON value"


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Injected, NOT_KNOWN),
        (InjectedStruct, NOT_KNOWN),
        (InjectedDict, NOT_KNOWN),
        (InjectedTuple, NOT_KNOWN),
        (InjectedModel, NOT_KNOWN),
        (list[Injected], NOT_KNOWN),
        (Outer, NOT_KNOWN),
        (InHeader, "does not know Header in the annotation of the field 'a' of InHeader"),
        (Defaulted, "the default of the field 'a' of Defaulted " + NOT_JSON),
        (DefaultedBesidePydantic, NOT_JSON),
        (DefaultedModel, NOT_JSON),
        (DefaultedStruct, "the default of the field 'a' of DefaultedStruct is not a JSON value"),
        (
            OtherType,
            "the default of the field 'a' of OtherType is not of its type: Expected `int`, got `str`",
        ),
        (SetItselfBesidePydantic, "the field 'a' of SetItselfBesidePydantic has init=False"),
    ],
    ids=str,
)
def test_field_that_says_what_the_toolkit_does_not_do_is_refused(kind: Any, reason: str):
    with pytest.raises(HoldfastError) as refused:
        tool_with(kind)

    assert refused.value.code is codes.BAD_TOOL
    assert reason in refused.value.message


@pytest.mark.promise("KIT-21")
@pytest.mark.parametrize("kind", [Defaulted, DefaultedModel, list[DefaultedBesidePydantic]], ids=str)
def test_default_that_is_not_json_is_left_out_of_the_schema_of_a_result(kind: Any):
    schema = msgspec.json.encode(tool_with(int, returned=kind).output_schema).decode()

    assert '"a":{"type":"integer"}' in schema


@pytest.mark.promise("KIT-21")
def test_return_type_whose_schema_cannot_be_made_is_refused():
    with pytest.raises(
        HoldfastError, match="default of the field 'a' of DefaultedStruct is not a JSON value"
    ):
        tool_with(int, returned=list[DefaultedStruct])


class Partial(msgspec.Struct):
    a: int | msgspec.UnsetType = msgspec.UNSET


class Serialized(pydantic.BaseModel):
    """Its defaults are JSON only with the serializer of their type, or are outside of their limits, or null."""

    at: Annotated[Path, pydantic.PlainSerializer(str)] = Path("b")
    count: int = pydantic.Field(-1, ge=0)
    size: int = None  # type: ignore[assignment]  # pyright: ignore


@dataclasses.dataclass
class Lenient:
    count: Annotated[int, Meta(ge=0)] = -1
    ratio: float = 1
    size: int = None  # type: ignore[assignment]  # pyright: ignore
    sizes: tuple[Size, ...] = (Size.SMALL,)
    table: ClassVar[Annotated[object, Depends(make)]] = None


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize("kind", [Serialized, Lenient, Partial])
def test_defaults_that_python_programs_use_in_fields_are_understood(kind: Any):
    assert tool_with(kind).schema["properties"]
