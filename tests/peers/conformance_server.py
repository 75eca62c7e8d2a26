"""A toolkit server with the tools that the official conformance suite requires."""

import asyncio
import base64
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from holdfast.model import codes
from holdfast.toolkit import (
    Audio,
    Call,
    Header,
    Image,
    Message,
    Meta,
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

box = Toolbox("conformance", version="1.0", instructions="What the suite asks for.", dynamic=True)


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


@dataclass(frozen=True)
class Person:
    username: Annotated[str, "User's response"]
    email: Annotated[str, "User's email address"]


@dataclass(frozen=True)
class Details:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(*values: str) -> list[dict[str, str]]:
    return [{"const": value, "title": value.title()} for value in values]


class Choices(TypedDict):
    untitledSingle: Literal["option1", "option2", "option3"]
    titledSingle: Annotated[str, Meta(extra_json_schema={"oneOf": titled("value1", "value2")})]
    legacyEnum: Annotated[
        str, Meta(extra_json_schema={"enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]})
    ]
    untitledMulti: list[Literal["option1", "option2", "option3"]]
    titledMulti: list[Annotated[str, Meta(extra_json_schema={"anyOf": titled("value1", "value2")})]]


@box.tool(operation="query")
async def test_elicitation(message: str, call: Call) -> str:
    """Ask the user."""
    person = await call.ask(message, Person)
    return f"User response: {person}"


@box.tool(operation="query")
async def test_elicitation_sep1034_defaults(call: Call) -> str:
    """Ask the user, with defaults."""
    return f"Elicitation completed: {await call.ask('Who are you?', Details)}"


@box.tool(operation="query")
async def test_elicitation_sep1330_enums(call: Call) -> str:
    """Ask the user to choose."""
    return f"Elicitation completed: {await call.ask('Choose.', Choices)}"


@box.tool(operation="query")
async def test_sampling(prompt: str, call: Call) -> str:
    """Ask the client's model."""
    return f"LLM response: {(await call.sample(prompt, max_tokens=100)).text}"


class Name(TypedDict):
    name: str


class Color(TypedDict):
    color: str


class Confirmation(TypedDict):
    ok: bool


class Context(TypedDict):
    context: str


@box.tool(operation="query")
async def test_input_required_result_elicitation(call: Call) -> str:
    """Ask for a name."""
    return f"Hello, {(await call.ask('What is your name?', Name, key='user_name'))['name']}!"


@box.tool(operation="query")
async def test_input_required_result_sampling(call: Call) -> str:
    """Ask the client's model."""
    return (await call.sample("What is the capital of France?", max_tokens=100, key="capital_question")).text


@box.tool(operation="query")
async def test_input_required_result_list_roots(call: Call) -> list[str]:
    """List the roots."""
    return [root.uri for root in await call.roots(key="client_roots")]


@box.tool(operation="query")
async def test_input_required_result_request_state(call: Call) -> str:
    """Ask for a confirmation."""
    await call.ask("Please confirm", Confirmation, key="confirm")
    return "state-ok"


@box.tool(operation="query")
async def test_input_required_result_multiple_inputs(call: Call) -> str:
    """Ask for several inputs at once."""
    name, greeting, roots = await asyncio.gather(
        call.ask("What is your name?", Name, key="user_name"),
        call.sample("Generate a greeting", max_tokens=50, key="greeting"),
        call.roots(key="client_roots"),
    )
    return f"{greeting.text} {name['name']} {len(roots)}"


@box.tool(operation="query")
async def test_input_required_result_multi_round(call: Call) -> str:
    """Ask twice."""
    name = await call.ask("Step 1: What is your name?", Name, key="step1")
    color = await call.ask("Step 2: What is your favorite color?", Color, key="step2")
    return f"{name['name']} {color['color']}"


@box.tool(operation="query")
async def test_input_required_result_tampered_state(call: Call) -> str:
    """Ask, with a state that cannot be changed."""
    await call.ask("Please confirm", Confirmation, key="confirm")
    return "confirmed"


@box.tool(operation="query")
async def test_input_required_result_capabilities(call: Call) -> str:
    """Ask only for what the client can do."""
    try:
        return str(await call.ask("What is your name?", Name))
    except ToolError:
        return (await call.sample("What is a name?", max_tokens=10)).text


async def added_later() -> str:
    """Do nothing."""
    return "nothing"


@box.tool()
async def test_trigger_tool_change() -> None:
    """Change the list of tools."""
    box.tool(name="added_later")(added_later)
    box.remove(tool="added_later")


@box.tool()
async def test_trigger_prompt_change() -> None:
    """Change the list of prompts."""
    box.prompt(name="added_later")(added_later)
    box.remove(prompt="added_later")


@box.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@box.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """An image."""
    return PIXEL


@box.resource("test://template/{id}/data")
async def template_data(id: str) -> dict[str, str | bool]:
    """Data that depends on the URI."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@box.resource("test://watched-resource")
async def watched() -> str:
    """A resource to subscribe to."""
    return "watched"


@box.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@box.prompt
async def test_prompt_with_arguments(
    arg1: Annotated[str, "First test argument"], arg2: Annotated[str, "Second test argument"]
) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@box.completion("test_prompt_with_arguments", "arg1")
async def cities() -> list[str]:
    return ["paris", "park", "party"]


@box.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message | str]:  # noqa: N803
    """A prompt with a resource."""
    content = "Embedded resource content for testing."
    return [
        Message(Resource(uri=resourceUri, content=content, mime_type="text/plain")),
        "Please process the embedded resource above.",
    ]


@box.prompt
async def test_prompt_with_image() -> list[Image | str]:
    """A prompt with an image."""
    return [Image(PIXEL), "Please analyze the image above."]


@box.prompt
async def test_input_required_result_prompt(call: Call) -> str:
    """A prompt that asks the user."""
    found = await call.ask("What context should the prompt use?", Context, key="user_context")
    return f"The context is {found['context']}."


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
