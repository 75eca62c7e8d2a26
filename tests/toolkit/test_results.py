"""What handlers return arrives unchanged, conforms to the output schema, and has its envelope where the box wants it."""

import dataclasses
import enum
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar, cast

import annotated_types
import msgspec
import pydantic
import pytest
import typing_extensions
from jsonschema import Draft202012Validator

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.meta_keys import ENVELOPE_KEY
from holdfast.toolkit import (
    Audio,
    Call,
    Image,
    Meta,
    Page,
    Reply,
    Text,
    Toolbox,
    ToolError,
    define_tool,
    paginate,
)
from holdfast.toolkit.return_type import EnvelopeKind
from holdfast.wire.messages import Raw
from tests.toolkit.clients import Era, connect_client

pytestmark = pytest.mark.anyio
T = TypeVar("T")
ENVELOPES: list[EnvelopeKind] = ["content", "meta"]


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Line:
    points: list[Point]


class Options(TypedDict):
    depth: int
    name: NotRequired[str]


class Shape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    side_count: int


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    friend: "Person | None" = None


class Tall(pydantic.BaseModel):
    height: int = pydantic.Field(ge=0)


class Aliased(pydantic.BaseModel):
    first_name: str = pydantic.Field(serialization_alias="firstName")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Triple(Generic[T]):
    first: T


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


def box_with(returned: Any, kind: Any, envelope: EnvelopeKind = "content") -> Toolbox:
    """A box with a tool that declares one type and returns a value."""

    async def it() -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    it.__annotations__["return"] = kind
    box = Toolbox("box", envelope=envelope)
    box.add(define_tool(it, description="It."))
    return box


async def call(box: Toolbox, name: str = "it", **arguments: Any) -> Any:
    """The result of a call, as clients get it."""
    dispatched = await box.dispatcher().dispatch(Call(tool=name), Raw(msgspec.json.encode(arguments)))
    return json.loads(bytes(dispatched.result))


def conforms(value: Any, schema: Any) -> bool:
    validator: Any = Draft202012Validator(schema)
    return validator.is_valid(value)


def data_of(result: Any) -> Any:
    """The structured content without `ok` and `_meta`."""
    return {name: value for name, value in result["structuredContent"].items() if name not in ("ok", "_meta")}


RETURNS: list[tuple[Any, Any, Any]] = [
    (str, "text", "text"),
    (int, 3, 3),
    (float, 0.5, 0.5),
    (float, 3, 3),
    (bool, True, True),
    (str | None, None, None),
    (str | None, "text", "text"),
    (Literal["a", "b"], "a", "a"),
    (Colour, Colour.RED, "red"),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    (Decimal, Decimal("0.1"), "0.1"),
    (bytes, b"png", "cG5n"),
    (list[int], [1, 2], [1, 2]),
    (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (set[int], {1}, [1]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[str, int], {"ok": 1}, {"ok": 1}),
    (dict[str, Any], {"a": {"b": [1]}}, {"a": {"b": [1]}}),
    (dict, {"a": 1}, {"a": 1}),
    (dict[str, object], {"a": 1}, {"a": 1}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Sequence[int], (1, 2), [1, 2]),
    (Triple[int], Triple(1), {"first": 1}),
    (Point, Point(1), {"x": 1, "y": 0}),
    (Point, {"x": 1}, {"x": 1}),
    (Line, Line([Point(1)]), {"points": [{"x": 1, "y": 0}]}),
    (Point | None, None, None),
    (Point | None, Point(1), {"x": 1, "y": 0}),
    (Point | Line, Line([]), {"points": []}),
    (Point | list[int], [1], [1]),
    (Options, {"depth": 1}, {"depth": 1}),
    (Shape, Shape(4), {"sideCount": 4}),
    (list[Shape] | None, [Shape(4)], [{"sideCount": 4}]),
    (Tree, Tree("a", [Tree("b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
    (Person, Person(name="Ann"), {"name": "Ann", "friend": None}),
    (Person, {"name": "Ann"}, {"name": "Ann", "friend": None}),
    (list[Person], [Person(name="Ann")], [{"name": "Ann", "friend": None}]),
    (dict[str, Person], {"a": Person(name="Ann")}, {"a": {"name": "Ann", "friend": None}}),
    (Aliased, Aliased(first_name="Ann"), {"first_name": "Ann"}),
    (Annotated[int, Meta(ge=0)], 3, 3),
    (Annotated[int, pydantic.Field(ge=0)], 3, 3),
    (Path, Path("a"), "a"),
    (Page[Point], Page([Point(1)], next_cursor="1"), {"items": [{"x": 1, "y": 0}], "next_cursor": "1"}),
    (
        Page[Person],
        Page([Person(name="Ann")], total=3),
        {"items": [{"name": "Ann", "friend": None}], "total": 3},
    ),
    (Reply[Point], Reply([Image(b"png")], Point(1)), {"x": 1, "y": 0}),
]


def in_content(data: Any) -> Any:
    """The data as it stands beside `ok` and `_meta`."""
    match data:
        case None:
            return {}
        case {"ok": _}:
            return {"result": data}
        case dict():
            return data  # pyright: ignore[reportUnknownVariableType]
        case list():
            return {"items": data}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return {"result": data}


@pytest.mark.promise("KIT-20", "KIT-21")
@pytest.mark.parametrize(("kind", "returned", "data"), RETURNS, ids=str)
async def test_typed_result_conforms_to_the_output_schema(kind: Any, returned: Any, data: Any):
    box = box_with(returned, kind)
    schema: Any = box.tools["it"].output_schema

    result = await call(box)

    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert data_of(result) == in_content(data)
    assert conforms(result["structuredContent"], schema)


@pytest.mark.promise("KIT-21", "KIT-22")
@pytest.mark.parametrize(("kind", "returned", "data"), RETURNS, ids=str)
async def test_typed_result_conforms_when_the_envelope_is_in_meta(kind: Any, returned: Any, data: Any):
    box = box_with(returned, kind, "meta")
    schema: Any = box.tools["it"].output_schema

    result = await call(box)

    wraps = "x-fastmcp-wrap-result" in schema
    assert schema["type"] == "object"
    assert result["structuredContent"] == ({"result": data} if wraps else data)
    assert conforms(result["structuredContent"], schema)
    text = [block["text"] for block in result["content"] if block["type"] == "text"]
    expected = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    assert text == ([] if data is None else [expected])


@pytest.mark.promise("KIT-21")
@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        (int, "3"),
        (int, None),
        (str, Image(b"png")),
        (list[int], ["a"]),
        (Point, Point("1")),  # type: ignore[arg-type]  # pyright: ignore
        (Point, {"y": 1}),
        (Point | Line, {"z": 1}),
        (dict[str, int], {"a": "b"}),
        (Shape, {"side_count": 4}),
        (Person, {"nom": "Ann"}),
        (Person, Person.model_construct(name=3)),  # type: ignore[arg-type]  # pyright: ignore
        (Annotated[int, Meta(ge=0)], -1),
        (Annotated[int, pydantic.Field(ge=0)], -1),
        (list[Tall], [Tall.model_construct(height=-1)]),
        (Annotated[int, annotated_types.Predicate(bool)], 0),
        (Annotated[int, annotated_types.Not(bool)], 1),
        (Annotated[Sequence[int], pydantic.Field(max_length=1)], [1, 2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("envelope", ENVELOPES)
async def test_result_that_does_not_conform_is_an_internal_error(
    kind: Any, returned: Any, envelope: EnvelopeKind, caplog: pytest.LogCaptureFixture
):
    box = box_with(returned, kind, envelope)

    result = await call(box)

    assert (result["isError"], "INTERNAL_ERROR" in result["content"][0]["text"]) == (True, True)
    (record,) = caplog.records
    assert record.exc_info
    assert "The result does not match the declared type" in str(record.exc_info[1])
    if envelope == "content":
        assert conforms(result["structuredContent"], box.tools["it"].output_schema)


@pytest.mark.promise("KIT-21")
@pytest.mark.parametrize("kind", [Point, list[int], int, Point | None, dict[str, int], None])
async def test_failure_conforms_to_the_output_schema_too(kind: Any):
    box = box_with(ToolError(codes.NOT_RUNNING, "It does not run.", pid=3), kind)

    result = await call(box)

    assert conforms(result["structuredContent"], box.tools["it"].output_schema)
    assert result["structuredContent"]["code"] == "NOT_RUNNING"


@pytest.mark.promise("KIT-21")
@pytest.mark.parametrize(
    "kind",
    [
        Any,
        object,
        list,
        list[object],
        Sequence[Any],
        dict[str, int] | list,
        Image,
        list[Image],
        tuple[str, Image],
        Image | None,
        Reply,
    ],
)
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_result_without_a_declared_type_of_its_data_has_no_output_schema(kind: Any, envelope: EnvelopeKind):
    assert box_with(None, kind, envelope).tools["it"].output_schema is None


@pytest.mark.promise("KIT-21")
async def test_tool_that_returns_nothing_has_no_data():
    in_meta, in_content = box_with(None, None, "meta"), box_with(None, None)

    assert in_meta.tools["it"].output_schema is None
    assert {**await call(in_meta), "_meta": {}} == {"content": [], "_meta": {}}
    assert data_of(await call(in_content)) == {}


@dataclasses.dataclass
class Health:
    ok: bool


class HealthDict(TypedDict):
    ok: bool


class HealthExtended(typing_extensions.TypedDict):
    ok: bool


class HealthStruct(msgspec.Struct):
    healthy: bool = msgspec.field(name="ok")


class HealthModel(pydantic.BaseModel):
    ok: bool


class Traced(pydantic.BaseModel):
    trace: str = pydantic.Field(serialization_alias="_meta")


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    "kind",
    [
        *(Health, HealthDict, HealthExtended, HealthStruct, HealthModel, Traced),
        *(Health | None, int | Health, Reply[Health], NewType("Named", Health)),
    ],
)
def test_return_type_with_a_reserved_name_is_refused_with_the_way_out(kind: Any):
    with pytest.raises(HoldfastError) as refused:
        box_with(None, kind)

    assert refused.value.code is codes.BAD_TOOL
    assert 'which every result has already. Rename the field, or set envelope="meta"' in refused.value.message


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    ("kind", "returned"),
    [(Health, Health(False)), (HealthDict, {"ok": False}), (HealthStruct, HealthStruct(False)),
     (HealthModel, HealthModel(ok=False))],
)  # fmt: skip
async def test_failed_health_check_reads_as_failed(kind: Any, returned: Any):
    result = await call(box_with(returned, kind, "meta"))

    assert (result["structuredContent"], result["content"][0]["text"]) == ({"ok": False}, '{"ok":false}')
    assert result["_meta"][ENVELOPE_KEY]["ok"] is True


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize("member", ["ok", "_meta"])
async def test_dict_with_a_reserved_name_stands_under_result(member: str):
    returned = {member: False, "a": 1}

    assert data_of(await call(box_with(returned, Any))) == {"result": returned}
    assert data_of(await call(box_with(returned, dict[str, Any]))) == {"result": returned}
    assert data_of(await call(box_with({"a": {member: False}}, Any))) == {"a": {member: False}}


@pytest.mark.promise("KIT-20")
async def test_undeclared_reserved_name_is_not_dropped_in_silence(caplog: pytest.LogCaptureFixture):
    @dataclasses.dataclass
    class Checked(Point):
        ok: bool = False

    result = await call(box_with(Checked(1), Point))

    assert result["structuredContent"]["code"] == "INTERNAL_ERROR"
    assert caplog.records[0].exc_info
    assert 'Set envelope="meta"' in str(caplog.records[0].exc_info[1])


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    "kind", [type("Pool", (), {}), list[type("Pool", (), {})], Point | type("Pool", (), {})]
)
def test_return_type_that_is_not_json_is_refused(kind: Any):
    with pytest.raises(HoldfastError) as refused:
        box_with(None, kind)

    assert refused.value.code is codes.BAD_TOOL
    assert "cannot be sent as JSON: Pool is not a JSON type. Return a dataclass" in refused.value.message


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [Any, "declared"])
async def test_nan_is_refused_and_not_sent_as_null(
    number: float, kind: Any, envelope: EnvelopeKind, caplog: pytest.LogCaptureFixture
):
    class Model(pydantic.BaseModel):
        ratio: float | None

    values: list[tuple[Any, Any]] = [
        (number, float | None),
        ({"a": [1, {"b": number}]}, dict[str, Any]),
        ([number], list[float | None]),
        (Model(ratio=number), Model),
        ({"a": Model(ratio=number)}, dict[str, Model]),
    ]
    for returned, declared in values:
        result = await call(box_with(returned, Any if kind is Any else declared, envelope))
        assert (result["isError"], "null" in str(result)) == (True, False)

    assert {str(record.exc_info and record.exc_info[1]) for record in caplog.records} == {
        "The result has a NaN or an infinity, which JSON does not have."
    }


@pytest.mark.promise("KIT-22")
async def test_envelope_in_meta_leaves_the_data_plain():
    result = await call(box_with(Point(1), Point, "meta"))

    stats = result["_meta"][ENVELOPE_KEY]
    assert result == {
        "content": [{"type": "text", "text": '{"x":1,"y":0}'}],
        "structuredContent": {"x": 1, "y": 0},
        "_meta": {
            ENVELOPE_KEY: {
                "ok": True,
                "elapsed_ms": stats["elapsed_ms"],
                "estimated_tokens": stats["estimated_tokens"],
                "session_id": "",
            }
        },
    }


@pytest.mark.promise("KIT-22")
async def test_equal_inputs_give_equal_content_when_the_envelope_is_in_meta():
    def without_meta(result: Any) -> Any:
        return {name: value for name, value in result.items() if name != "_meta"}

    good, bad = box_with(Point(1), Point, "meta"), box_with(ToolError("No."), Point, "meta")

    assert without_meta(await call(good)) == without_meta(await call(good))
    assert without_meta(await call(bad)) == without_meta(await call(bad))


@pytest.mark.promise("KIT-22")
async def test_failure_is_text_with_code_and_hint_when_the_envelope_is_in_meta():
    error = ToolError(codes.NOT_RUNNING, "It does not run.", next_actions=["Start it."], pid=3)

    result = await call(box_with(error, Point, "meta"))

    hint = codes.NOT_RUNNING.hint
    stats = {name: result["_meta"][ENVELOPE_KEY][name] for name in ("elapsed_ms", "estimated_tokens")}
    assert result == {
        "content": [
            {"type": "text", "text": f'NOT_RUNNING: It does not run.\n{{"pid":3}}\nStart it.\n{hint}'}
        ],
        "isError": True,
        "_meta": {
            ENVELOPE_KEY: {
                "ok": False,
                "code": "NOT_RUNNING",
                "error": "It does not run.",
                "hint": hint,
                "retryable": False,
                "http": 409,
                "next_actions": ["Start it."],
                "details": {"pid": 3},
                "session_id": "",
                **stats,
            }
        },
    }


@pytest.mark.promise("KIT-22")
async def test_every_bad_argument_is_in_the_text_when_the_envelope_is_in_meta():
    box = Toolbox("box", envelope="meta")

    @box.tool
    async def it(a: int, b: str) -> int:
        """It."""
        return a

    result = await call(box, a="x", c=1)

    assert result["content"][0]["text"].splitlines() == [
        "BAD_ARGUMENT: Bad arguments for it: 'a', 'b', 'c'.",
        "a: Expected `int`, got `str`.",
        "b: It is required.",
        "c: Unknown argument. Known: a, b.",
        codes.BAD_ARGUMENT.hint,
    ]


@pytest.mark.promise("KIT-22")
@dataclasses.dataclass
class Verdict:
    code: int
    size: Literal["small", "big", "medium"]


@pytest.mark.parametrize("envelope", ["content", "meta"])
async def test_fields_of_the_data_are_at_the_top_of_the_output_schema(envelope: EnvelopeKind):
    box = box_with(Verdict(7, "big"), Verdict, envelope)

    async with box.client() as client:
        (tool,) = await client.list_tools()
        done = await client.call("it")

    schema = cast("Any", tool["outputSchema"])
    assert schema["properties"]["size"]["enum"] == ["small", "big", "medium"], "the order of the author"
    assert conforms(done.data, schema)
    assert not conforms({**done.data, "code": "x"}, schema)
    if envelope == "content":  # a failure has a `code`, too
        assert conforms({"ok": False, "code": "X", "error": "", "_meta": {}}, schema)


def test_unknown_envelope_is_refused():
    with pytest.raises(HoldfastError, match='envelope must be "content" or "meta"'):
        Toolbox("box", envelope="mata")  # type: ignore[arg-type]  # pyright: ignore


IMAGE = {"type": "image", "data": "cG5n", "mimeType": "image/png"}


def text(value: str) -> Any:
    return {"type": "text", "text": value}


@pytest.mark.promise("KIT-19")
@pytest.mark.parametrize(
    ("returned", "data", "blocks"),
    [
        (Image(b"png"), {}, [IMAGE]),
        ([Image(b"png"), Image(b"png")], {}, [IMAGE, IMAGE]),
        (("a caption", Image(b"png")), {"result": "a caption"}, [IMAGE]),
        ([{"size": 3}, Image(b"png")], {"size": 3}, [IMAGE]),
        ([1, Image(b"png"), 2], {"items": [1, 2]}, [IMAGE]),
        ([Text("a"), "b"], {"result": "b"}, [text("a")]),
        ([1, 2], {"items": [1, 2]}, []),
    ],
)
async def test_list_with_images_becomes_image_blocks(returned: Any, data: Any, blocks: Any):
    for kind in (Any, list, list[Any], tuple[str, Image], list[str | Image]):
        result = await call(box_with(returned, kind))

        assert (data_of(result), result["content"][1:]) == (data, blocks)


@pytest.mark.promise("KIT-19", "KIT-22")
@pytest.mark.parametrize(
    ("returned", "blocks"),
    [
        (Image(b"png"), [IMAGE]),
        (("a caption", Image(b"png"), {"size": 3}), [text("a caption"), IMAGE, text('{"size":3}')]),
        (Reply([Audio(b"png", "audio/mp3")], {"size": 3}),
         [text('{"size":3}'), {"type": "audio", "data": "cG5n", "mimeType": "audio/mp3"}]),
        (Reply([Image(b"png")]), [IMAGE]),
        (Reply([Text("three"), Image(b"png")], {"size": 3}), [text("three"), IMAGE]),
    ],
)  # fmt: skip
async def test_blocks_keep_their_order_when_the_envelope_is_in_meta(returned: Any, blocks: Any):
    assert (await call(box_with(returned, Any, "meta")))["content"] == blocks


async def test_decorator_works_without_parentheses():
    box = Toolbox("box")

    @box.tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    assert (double(2), data_of(await call(box, "double", number=2))) == (4, {"result": 4})
    with pytest.raises(HoldfastError, match="name='double'"):
        box.tool("double")  # type: ignore[call-overload]  # pyright: ignore


@pytest.mark.promise("KIT-05")
async def test_tool_error_needs_no_code(caplog: pytest.LogCaptureFixture):
    result = await call(
        box_with(ToolError("The printer is out of paper.", next_actions=["Add paper."]), None)
    )

    failure = result["structuredContent"]
    assert (failure["code"], failure["error"], failure["next_actions"], caplog.records) == (
        "TOOL_FAILED",
        "The printer is out of paper.",
        ["Add paper."],
        [],
    )
    with pytest.raises(TypeError):
        ToolError("NOT_RUNNING", "It does not run.")  # type: ignore[call-overload]  # pyright: ignore


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ({"a": "2"}, {"a": 2}),
        ({"b": "0.5"}, {"b": 0.5}),
        ({"c": "true"}, {"c": True}),
        ({"d": "2"}, {"d": "2"}),
        ({"e": ["1", 2]}, {"e": [1, 2]}),
        ({"f": "2"}, {"f": 2}),
    ],
)
async def test_texts_are_taken_for_numbers_where_the_box_is_lax(sent: Any, got: Any):
    def it(
        a: int = 0,
        b: float = 0,
        c: bool = False,
        d: str | int = "",
        e: Annotated[list[int], Meta(max_length=2)] = [],  # noqa: B006
        f: int = pydantic.Field(default=0),
    ) -> dict[str, Any]:
        """It."""
        return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f}

    lax, strict = Toolbox("box", arguments="lax"), Toolbox("box")
    lax.tool(it)
    strict.tool(it)

    assert data_of(await call(lax, **sent)) == {"a": 0, "b": 0, "c": False, "d": "", "e": [], "f": 0} | got
    assert (await call(strict, **sent)).get("isError", False) is not ("d" in sent or "f" in sent)
    assert lax.tools["it"].schema == strict.tools["it"].schema


@pytest.mark.parametrize("sent", [{"a": "nan"}, {"a": "-inf"}, {"b": [1, "Infinity"]}, {"a": "two"}])
async def test_nan_is_no_number_where_the_box_is_lax(sent: Any):
    box = Toolbox("box", arguments="lax")

    @box.tool
    def it(a: float = 0, b: list[float] = []) -> None:  # noqa: B006
        """It."""

    assert (await call(box, **sent))["structuredContent"]["code"] == "BAD_ARGUMENT"


async def test_long_list_is_returned_in_pages(caplog: pytest.LogCaptureFixture):
    box = Toolbox("box")
    pages: list[Any] = []

    @box.tool(operation="query")
    def numbers(cursor: str = "") -> Page[int]:
        """List numbers."""
        return paginate(range(5), cursor, size=2)

    for cursor in ("", "2", "4"):
        pages.append(data_of(await call(box, "numbers", cursor=cursor)))
    bad = [
        (await call(box, "numbers", cursor=cursor))["structuredContent"]["code"] for cursor in ("6", "x", "٣")
    ]

    assert pages == [
        {"items": [0, 1], "next_cursor": "2", "total": 5},
        {"items": [2, 3], "next_cursor": "4", "total": 5},
        {"items": [4], "total": 5},
    ]
    assert (bad, caplog.records) == (["BAD_CURSOR"] * 3, [])


async def test_handler_whose_decorator_hides_that_it_is_async_is_awaited():
    import functools

    def decorated(handler: Any) -> Any:
        @functools.wraps(handler)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **kwargs)

        return wrapper

    box = Toolbox("box")

    @box.tool
    @decorated
    async def it() -> int:
        """It."""
        return 3

    assert data_of(await call(box)) == {"result": 3}


@pytest.mark.promise("KIT-20")
async def test_included_tools_keep_the_envelope_of_their_own_box():
    plain, outer = box_with(Health(False), Health, "meta"), Toolbox("outer")

    outer.include(plain, "plain")
    (name,) = outer.tools
    async with outer.client() as client:
        result = await client.call(name)

    assert (result.text, result.envelope["ok"]) == ('{"ok":false}', True)


@pytest.mark.promise("KIT-21", "KIT-22")
@pytest.mark.parametrize("transport_and_era", [("stdio", "handshake"), ("http", "modern")], ids="-".join)
def test_clients_get_plain_data_over_the_wire(transport_and_era: tuple[str, Era]):
    with connect_client(transport_and_era, "tests.toolkit.plain_server") as client:
        schema = client.tools()["divide"]["outputSchema"]
        half, again = (client.raw_call("divide", {"a": 1, "b": 2}) for _ in range(2))
        failed = client.raw_call("divide", {"a": 1, "b": 0})

    assert conforms(half["structuredContent"], schema)
    for result in (half, again):
        envelope = result["_meta"].pop(ENVELOPE_KEY)
        assert (envelope["ok"], envelope["session_id"]) == (True, "")
    assert half == again
    assert (half["content"], half["structuredContent"]) == ([text("0.5")], {"result": 0.5})
    assert (failed["isError"], failed["_meta"][ENVELOPE_KEY]["code"]) == (True, "TOOL_FAILED")
    assert failed["content"] == [text(f"TOOL_FAILED: No division by zero.\n{codes.TOOL_FAILED.hint}")]
    assert "structuredContent" not in failed


@dataclasses.dataclass
class Counted:
    x: int
    unit: str = dataclasses.field(init=False, default="cm")
    doubled: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.x


COUNTED = {"x": 2, "unit": "cm", "doubled": 4}


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    ("annotation", "returned", "sent"),
    [
        (Counted, Counted(2), COUNTED),
        (list[Counted], [Counted(2)], [COUNTED]),
        (dict[str, Any], {"a": Counted(2)}, {"a": COUNTED}),
        (dict, {"a": [Counted(2)]}, {"a": [COUNTED]}),
        (Any, Counted(2), COUNTED),
    ],
)
async def test_fields_that_a_dataclass_sets_itself_are_sent(annotation: Any, returned: Any, sent: Any):
    def handler() -> Any:
        """Return a dataclass with a default that stands in the class."""
        return returned

    handler.__annotations__["return"] = annotation
    box = Toolbox("shop", envelope="meta")
    box.add(define_tool(handler))

    async with box.client() as client:
        answer = await client.call("handler", {})

    assert json.loads(answer.text) == sent
