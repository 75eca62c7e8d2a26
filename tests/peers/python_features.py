"""Use every feature of a toolkit server as a Python client; print what was said as one JSON object.

python python_features.py <sdk|fastmcp> <handshake|modern> <command> <arguments…>, or an address instead of a command
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

MODES = {"handshake": "legacy", "modern": "auto"}
asked: list[Any] = []
told: asyncio.Queue[str] = asyncio.Queue()


async def main(library: str, era: str, *command: str) -> None:
    async with AsyncExitStack() as stack:
        opened = sdk_client if library == "sdk" else fastmcp_client
        client = await stack.enter_async_context(opened(list(command), MODES[era]))
        session: Any = client.session
        if library == "sdk":
            call, complete = client.call_tool, client.complete
        else:
            call, complete = client.call_tool_mcp, None
        said: dict[str, Any] = {
            "resources": [str(each.uri) for each in (await session.list_resources()).resources],
            "templates": [
                each.uri_template for each in (await session.list_resource_templates()).resource_templates
            ],
            "prompts": [
                [
                    each.name,
                    [[argument.name, argument.required] for argument in list[Any](each.arguments or ())],
                ]
                for each in (await session.list_prompts()).prompts
            ],
        }
        read = await session.read_resource("shop://orders/7")
        said["read"] = [read.contents[0].mime_type, read.contents[0].text]
        said["unknown"] = await refusal(session.read_resource("shop://nothing"))
        prompt = await session.get_prompt("greet", {"name": "Ann"})
        said["prompt"] = [[message.role, message.content.type] for message in prompt.messages]
        ref = types.PromptReference(type="ref/prompt", name="greet")
        completing = complete or session.complete
        said["completion"] = (await completing(ref, {"name": "name", "value": "b"})).completion.values
        said["order"] = json.loads((await call("order", {})).content[0].text)["result"]
        said["declined"] = json.loads((await call("decline", {})).content[0].text)["code"]
        said["asked"] = asked
        if library == "sdk":
            said["told"] = await changes(client, era, call)
        print(json.dumps(said))


async def changes(client: Any, era: str, call: Any) -> list[str]:
    """What the client hears after a change, sorted."""
    if era == "handshake":
        await client.subscribe_resource("shop://menu")
        await call("change", {})
        return sorted([await told.get(), await told.get()])
    async with client.listen(prompts_list_changed=True, resource_subscriptions=["shop://menu"]) as events:
        await call("change", {})
        heard = [type(await anext(events)).__name__, type(await anext(events)).__name__]
        return sorted(
            {"PromptsListChanged": "prompts/list_changed"}.get(name, "resources/updated") for name in heard
        )


async def elicit(context: Any, params: Any) -> Any:
    asked.append(params.message)
    if params.message == "Decline this.":
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={"dish": "soup", "plates": 2})


async def sample(context: Any, params: Any) -> Any:
    asked.append(params.messages[0].content.text)
    content = types.TextContent(type="text", text="Nice!")
    return types.CreateMessageResult(role="assistant", content=content, model="tiny")


async def roots(context: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///blog")])  # type: ignore[arg-type]


async def hear(message: Any) -> None:
    method = getattr(message, "method", "")
    if method.endswith(("list_changed", "updated")):
        told.put_nowait(method.removeprefix("notifications/"))


def sdk_client(command: list[str], mode: str) -> Any:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server: Any = (
        command[0]
        if command[0].startswith("http://")
        else stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    )
    return Client(
        server,
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
        message_handler=hear,
    )


def fastmcp_client(command: list[str], mode: str) -> Any:
    from fastmcp.client import Client
    from fastmcp.client.elicitation import ElicitResult
    from fastmcp.client.transports import StdioTransport

    async def elicited(message: str, response_type: Any, params: Any, context: Any) -> Any:
        answer = await elicit(context, params)
        return ElicitResult(action=answer.action, content=answer.content)

    async def sampled(messages: Any, params: Any, context: Any) -> Any:
        return await sample(context, params)

    server: Any = (
        command[0]
        if command[0].startswith("http://")
        else StdioTransport(command[0], command[1:], keep_alive=False)
    )
    return Client(
        server, mode=mode, elicitation_handler=elicited, sampling_handler=sampled, roots=["file:///blog"]
    )


async def refusal(answer: Any) -> int | None:
    try:
        await answer
    except MCPError as error:
        return error.code
    return None


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
