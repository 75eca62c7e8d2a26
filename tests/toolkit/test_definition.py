"""Tools are checked when they are defined."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import fastmcp.utilities.types
import mcp_types
import msgspec
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import (
    Annotations,
    Call,
    Header,
    Meta,
    Reply,
    SessionContext,
    Toolbox,
    ToolDefinition,
    ToolError,
    Workspace,
    define_tool,
)
from holdfast.toolkit.listed_tool import to_wire
from holdfast.toolkit.operation import Operation
from tests.toolkit.server_process import ROOT


async def fine(text: str) -> str:
    """A fine tool."""
    return text


@pytest.mark.promise("KIT-01")
def test_define_tool_makes_a_definition_from_the_handler():
    assert define_tool(fine, operation="query", title="Fine") == ToolDefinition(
        name="fine",
        title="Fine",
        description="A fine tool.",
        operation="query",
        requires_eval_flag=False,
        handler=fine,
    )


@pytest.mark.promise("KIT-01")
def test_decorator_returns_the_function_unchanged():
    box = Toolbox("box")

    assert box.tool(operation="query")(fine) is fine


@pytest.mark.promise("KIT-01")
def test_schema_is_made_from_types_defaults_and_descriptions():
    box = Toolbox("box")

    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    async def paint(
        what: Annotated[str, "The thing.", Meta(min_length=1)],
        *,
        colour: Colour,
        call: Call,
        workspace: Workspace,
        layers: Annotated[int, Meta(ge=1, le=9)] = 1,
        finish: Literal["matt", "gloss"] | None = None,
        tags: list[str] = [],  # noqa: B006
        region: Annotated[str, Header("Region")] = "eu",
    ) -> None:
        """Paint."""

    added = box.add(define_tool(paint))

    assert added.schema == {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "The thing.", "minLength": 1},
            "colour": {"$ref": "#/$defs/Colour"},
            "workspace": {
                "type": "string",
                "description": "The workspace to work in: its slug, its name, or an absolute path in it."
                " Omit it to use the session's own workspace.",
            },
            "layers": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
            "finish": {
                "anyOf": [{"enum": ["matt", "gloss"], "type": "string"}, {"type": "null"}],
                "default": None,
            },
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "region": {"type": "string", "x-mcp-header": "Region", "default": "eu"},
        },
        "required": ["what", "colour"],
        "additionalProperties": False,
        "$defs": {"Colour": {"enum": ["red", "blue"], "type": "string"}},
    }


@pytest.mark.promise("KIT-02")
@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (
            define_tool(fine, name="taken"),
            "Two tools would be called 'taken'. Give one another name: @box.tool(name=…).",
        ),
        (
            define_tool(fine, name="ta.ken"),
            "Two tools would be called 'ta_ken': 'ta_ken' and 'ta.ken'. Give one another name: @box.tool(name=…).",
        ),
        (
            ToolDefinition(name="odd", handler=fine, description="Odd.", operation="mutation"),
            "'mutation' is not an operation type. Use one of: command, query, eval, screenshot, logs, dialog, window_info.",
        ),
        (
            define_tool(fine, operation="eval"),
            "The tool 'fine' evaluates code. Add requires_eval_flag=True to its definition.",
        ),
        (
            define_tool(fine, codes=["NEVER_HEARD_OF"]),
            (
                "'fine' declares the code 'NEVER_HEARD_OF', which does not exist."
                " Add it first: box.code('NEVER_HEARD_OF', …)."
            ),
        ),
        (
            define_tool(fine, name="bad name"),
            "'bad name' is not a valid tool name: use 1 to 128 letters (a-z, A-Z), digits, '_', '-' and '.'.",
        ),
        (define_tool(fine, description=" "), "The tool 'fine' has no description. Give it a docstring."),
    ],
)
def test_bad_definition_raises(definition: ToolDefinition, message: str):
    box = Toolbox("box")
    box.tool(name="taken")(fine)
    box.tool(name="ta_ken")(fine)

    with pytest.raises(HoldfastError) as refused:
        box.add(definition)

    assert (refused.value.code, refused.value.message) == (codes.BAD_TOOL, message)


def untyped(text) -> None:  # pyright: ignore
    """No type."""


def spread(*texts: str) -> None:
    """Too many."""


def unreadable(thing: "object.nonsense") -> None:  # type: ignore[name-defined]  # pyright: ignore
    """No such type."""


def hidden(_text: str) -> None:
    """Hidden."""


def renamed(folder: Workspace) -> None:
    """A workspace of another name."""


def opaque(thing: memoryview | Toolbox) -> None:
    """A type that is not JSON."""


def several(workspace: list[Workspace]) -> None:
    """A workspace that a caller could forge."""


def disguised(session: dict[str, SessionContext | None]) -> None:
    """A context that a caller could forge."""


def either(who: Call | str) -> None:
    """A call that a caller could forge."""


def twice(one: SessionContext, two: SessionContext | None) -> None:
    """The same injected type twice."""


async def yielding() -> AsyncIterator[int]:
    """A generator."""
    yield 1


class Functor:
    """A callable object."""

    async def __call__(self, text: str) -> str:
        return text


UNFIT: list[Any] = [
    *(
        untyped,
        spread,
        unreadable,
        hidden,
        renamed,
        opaque,
        several,
        disguised,
        either,
        twice,
        yielding,
        Functor(),
    ),
]


@pytest.mark.promise("KIT-02")
@pytest.mark.parametrize("handler", UNFIT)
def test_handler_with_an_unsupported_signature_raises(handler: Any):
    with pytest.raises(HoldfastError) as refused:
        Toolbox("box").tool()(handler)

    assert refused.value.code is codes.BAD_TOOL


@pytest.mark.promise("KIT-02")
def test_there_are_seven_operation_types_with_their_hints():
    query = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    assert {operation.value: operation.annotations for operation in Operation} == {
        "command": Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
        "query": query,
        "eval": Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
        "screenshot": query,
        "logs": query,
        "dialog": Annotations(read_only=False, destructive=False, idempotent=False, open_world=False),
        "window_info": query,
    }


@pytest.mark.promise("KIT-07")
def test_code_needs_a_valid_name_that_is_not_taken():
    box = Toolbox("box")
    full = box.code("BOX_FULL", http=507, hint="Take something out.", retryable=True)

    for name in ("BOX_FULL", "BAD_ARGUMENT", "lower"):
        with pytest.raises(HoldfastError):
            box.code(name, http=400, hint="Again.")

    assert (full.http_status, full.hint, full.retryable) == (507, "Take something out.", True)


@pytest.mark.promise("KIT-07")
def test_description_lists_the_codes_of_the_tool_and_the_manifest_lists_all():
    box = Toolbox("box")
    box.code("BOX_FULL", http=507, hint="Take something out.")

    async def put(workspace: Workspace) -> None:
        """Put something in."""

    added = box.add(define_tool(put, codes=["NOT_RUNNING", "BOX_FULL"]))

    assert added.description == "Put something in.\n\nFails with: BOX_FULL, NOT_RUNNING."
    assert box.manifest()["tools"][0]["codes"] == [
        *("BAD_ARGUMENT", "BAD_FOLDER", "BAD_WORKSPACE", "BAD_WORKSPACE_FILE", "BOX_FULL", "INTERNAL_ERROR"),
        *(
            "MISSING_WORKSPACE",
            "NOT_RUNNING",
            "TIMEOUT",
            "TOOL_FAILED",
            "UNKNOWN_WORKSPACE",
            "WORKSPACE_DENIED",
        ),
    ]


@pytest.mark.promise("KIT-07")
@pytest.mark.anyio
async def test_short_listing_has_the_codes_in_the_manifest_and_in_each_error():
    box = Toolbox("box", listing="short")
    full = box.code("BOX_FULL", http=507, hint="Take something out.")

    @box.tool(codes=["BOX_FULL"])
    async def put() -> None:
        """Put something in."""
        raise ToolError(full, "There is no space.")

    async with box.client() as client:
        (listed,) = await client.list_tools()
        failed = await client.call("put")

    assert (listed["description"], failed.code) == ("Put something in.", "BOX_FULL")
    assert "BOX_FULL" in box.manifest()["tools"][0]["codes"]


@pytest.mark.promise("KIT-07")
def test_every_code_has_a_unique_name_a_hint_and_an_http_error_status():
    registered = codes.registered()

    assert len({code.name for code in registered}) == len(registered)
    assert all(code.hint.endswith((".", "…")) and 400 <= code.http_status < 600 for code in registered)


@pytest.mark.promise("KIT-19")
def test_given_hints_override_those_of_the_operation():
    box = Toolbox("box")

    added = box.add(define_tool(fine, annotations=Annotations(destructive=False, idempotent=True)))

    assert added.annotations == Annotations(
        read_only=False, destructive=False, idempotent=True, open_world=False
    )


def test_tool_that_only_reads_is_not_destructive():
    added = Toolbox("hints").add(define_tool(fine, annotations=Annotations(read_only=True)))

    assert (added.annotations.read_only, added.annotations.destructive) == (True, False)


@pytest.mark.promise("KIT-15")
def test_manifest_lists_every_tool_with_its_schema_and_codes():
    printed = _manifest()

    names = [entry["name"] for entry in printed["tools"]]
    assert (printed["name"], printed["version"], names == sorted(names), "evaluate" in names) == (
        "notes",
        "1.0",
        True,
        True,
    )
    note = next(entry for entry in printed["tools"] if entry["name"] == "add_note")
    assert (note["operation"], note["codes"], note["input_schema"]["required"]) == (
        "command",
        ["BAD_ARGUMENT", "INTERNAL_ERROR", "NOTE_EXISTS", "TIMEOUT", "TOOL_FAILED"],
        ["title"],
    )
    assert printed["codes"]["NOTE_EXISTS"] == {
        "http": 409,
        "retryable": False,
        "hint": "Choose another title.",
    }


@pytest.mark.promise("KIT-15")
def test_every_schema_in_the_manifest_is_valid():
    from jsonschema import Draft202012Validator

    for entry in _manifest()["tools"]:
        Draft202012Validator.check_schema(entry["input_schema"])
        Draft202012Validator.check_schema(entry["output_schema"] or {})


def test_server_with_a_bad_tool_does_not_start(tmp_path: Path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "from holdfast.toolkit import Toolbox\n"
        "box = Toolbox('wrong')\n"
        "@box.tool(codes=['NO_SUCH'])\n"
        "def f() -> None:\n"
        "    'F.'\n"
        "box.main()\n"
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "NO_SUCH" in done.stderr
    assert done.stdout == ""


def _manifest() -> Any:
    command = [sys.executable, "-m", "tests.toolkit.notes_server", "manifest"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    return json.loads(done.stdout)


def test_a_short_listing_leaves_out_what_a_model_can_do_without():
    listed: dict[str, Any] = {}
    for listing in ("full", "short"):
        box = Toolbox("shop", envelope="meta", listing=listing)
        box.code("SOLD_OUT", http=409, hint="Try another one.")

        @box.tool(codes=["SOLD_OUT"], annotations=Annotations(open_world=True))
        def buy(
            name: Annotated[str, Meta(max_length=9)],
            note: str = "",
            size: Literal["s", "m"] = "m",
            count: Annotated[int, Meta(ge=1)] = 1,
        ) -> dict[str, Any]:
            """Buy."""
            return {"name": name, "note": note, "size": size, "count": count}

        listed[listing] = msgspec.json.decode(msgspec.json.encode(to_wire(box.tools["buy"])))

    assert listed["short"] == {
        "name": "buy",
        "description": "Buy.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "note": {"type": "string"},
                "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
                "count": {"type": "integer", "default": 1},
            },
            "required": ["name"],
        },
    }
    assert "SOLD_OUT" in listed["full"]["description"]
    assert listed["full"]["inputSchema"]["properties"]["name"]["maxLength"] == 9
    with pytest.raises(HoldfastError, match="listing must be"):
        Toolbox("shop", listing="tiny")  # pyright: ignore[reportArgumentType]


FOREIGN_STYLES: dict[str, tuple[Callable[[Toolbox], object], str]] = {
    "an unknown option of a tool": (
        lambda box: box.tool(tags={"a"}),  # type: ignore[call-overload]
        "@box.tool has no option 'tags'. Write meta=",
    ),
    "a misspelt option of a resource": (
        lambda box: box.resource("a://b", mimetype="text/plain"),  # type: ignore[call-arg]
        "@box.resource has no option 'mimetype'. Did you mean 'mime_type'?",
    ),
    "an unknown option of a prompt": (
        lambda box: box.prompt(icons=[]),  # type: ignore[call-overload]
        "@box.prompt has no option 'icons'.",
    ),
    "annotations as a dict": (
        lambda box: box.tool(annotations={"readOnlyHint": True}),  # type: ignore[call-overload]
        "are a dict. Write annotations=Annotations(read_only=True)",
    ),
    "other annotations as a dict": (
        lambda box: box.tool(annotations={"destructiveHint": True}),  # type: ignore[call-overload]
        "are a dict. Write annotations=Annotations(destructive=True)",
    ),
}


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize("style", FOREIGN_STYLES)
def test_option_that_would_have_no_effect_is_refused(style: str):
    decorate, message = FOREIGN_STYLES[style]

    def handler() -> str:
        """Do it."""
        return ""

    with pytest.raises(HoldfastError) as raised:
        decorate(Toolbox("box"))(handler)  # type: ignore[operator]

    assert (raised.value.code, message in raised.value.message) == (codes.BAD_TOOL, True)


@pytest.mark.promise("KIT-20")
@pytest.mark.parametrize(
    "foreign", [fastmcp.utilities.types.Image, mcp_types.TextContent, list[mcp_types.TextContent]]
)
def test_content_type_of_another_toolkit_is_refused_as_a_return_type(foreign: Any):
    def handler() -> Any:
        """Do it."""

    handler.__annotations__["return"] = foreign

    with pytest.raises(HoldfastError, match="a type of another toolkit"):
        Toolbox("box", envelope="meta").tool(handler)


def test_function_is_not_added_as_a_definition():
    with pytest.raises(HoldfastError, match=r"not a function\. To add a function, write box\.tool"):
        Toolbox("shop").add(fine)  # type: ignore[arg-type]


def test_plain_text_in_the_content_of_a_reply_is_refused():
    with pytest.raises(TypeError, match=r"has a str\. Use Text, Image"):
        Reply(["Done."])  # type: ignore[list-item]


class Counter:
    """An object with a tool. Some servers make one for each session."""

    def __init__(self, start: int) -> None:
        self._number = start

    async def add(self, step: int) -> int:
        """Add to the counter."""
        self._number += step
        return self._number


@pytest.mark.anyio
async def test_the_types_of_a_method_are_read_once_for_all_objects_of_its_class():
    boxes = [Toolbox("one"), Toolbox("two"), Toolbox("other", envelope="meta", arguments="lax")]
    for start, box in enumerate(boxes):
        box.tool(Counter(10 * start).add)

    first, second, other = (box.tools["add"] for box in boxes)
    assert (second.signature is first.signature, second.return_type is first.return_type) == (True, True)
    assert other.signature is not first.signature
    assert [await tool.definition.handler(step=1) for tool in (first, second, other)] == [1, 11, 21]
