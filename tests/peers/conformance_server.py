"""A toolkit server with the tools that the official conformance suite requires."""

import asyncio
import base64
from typing import Annotated

from holdfast.model import codes
from holdfast.toolkit import (
    Audio,
    Call,
    Header,
    Image,
    Reply,
    Resource,
    Text,
    Toolbox,
    ToolDefinition,
    ToolError,
)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = (
    b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data"
)

box = Toolbox("conformance", version="1.0", instructions="What the suite asks for.")


@box.tool(operation="query")
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@box.tool(operation="screenshot")
async def test_image_content() -> Image:
    """Return an image."""
    return Image(PIXEL)


@box.tool(operation="query")
async def test_audio_content() -> Audio:
    """Return audio."""
    return Audio(SOUND)


@box.tool(operation="query")
async def test_embedded_resource() -> Resource:
    """Return a resource."""
    return Resource(uri="test://embedded-resource", content="Some text.", mime_type="text/plain")


@box.tool(operation="query")
async def test_multiple_content_types() -> Reply:
    """Return several types of content."""
    return Reply(
        [
            Text("Multiple content types test:"),
            Image(PIXEL),
            Resource(uri="test://mixed", content='{"test":"data","value":123}', mime_type="application/json"),
        ]
    )


@box.tool(operation="query", codes=["DENIED"])
async def test_error_handling() -> None:
    """Fail."""
    raise ToolError(codes.DENIED, "This tool intentionally returns an error for testing")


@box.tool(operation="query")
async def test_tool_with_logging(call: Call) -> str:
    """Log while working."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log("info", words)
        await asyncio.sleep(0.05)
    return "logged"


@box.tool(operation="query")
async def test_logging_tool(call: Call) -> str:
    """Log once."""
    await call.log("info", "a word")
    return "logged"


@box.tool(operation="query")
async def test_tool_with_progress(call: Call) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await call.progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


@box.tool(operation="query")
async def test_streaming_elicitation(call: Call) -> str:
    """Send a notification before the response."""
    await call.progress(1, 2)
    return "asked no user"


@box.tool(operation="query", required_capabilities={"sampling": {}})
async def test_missing_capability() -> str:
    """Work only for clients with the sampling capability."""
    return "unreachable"


@box.tool(operation="query")
async def test_custom_header(region: Annotated[str, "Where to look.", Header("Region")]) -> str:
    """Take an argument that clients repeat in a header."""
    return region


async def json_schema_2020_12_tool(name: str = "", address: dict[str, str] | None = None) -> dict[str, str]:
    """Take arguments with a JSON Schema 2020-12."""
    return {"name": name, **(address or {})}


box.add(
    ToolDefinition(
        name="json_schema_2020_12_tool",
        description="Take arguments that are described in JSON Schema 2020-12.",
        operation="query",
        handler=json_schema_2020_12_tool,
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        },
    )
)

if __name__ == "__main__":
    box.main()
