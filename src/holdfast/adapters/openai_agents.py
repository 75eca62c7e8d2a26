"""A session's tools as function tools of the OpenAI Agents SDK."""

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents import FunctionTool
from agents.tool import ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from holdfast.adapters.offered_tools import OfferedTools, ToolSource, result_text
from holdfast.connect.catalog import CatalogTool
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.wire.strict_json import StrictJsonError, decode_strict


async def make_tools(session: ToolSource, tools: Sequence[str] | None) -> list[FunctionTool]:
    """Make a function tool for each of the session's tools that match `tools`. A failure is a result that the model reads."""
    return [
        FunctionTool(
            name=tool.model_name,
            description=tool.description,
            params_json_schema={"properties": {}, **tool.schema},
            on_invoke_tool=_invoker(session, tool),
            strict_json_schema=False,  # the schema is the server's
        )
        for tool in await OfferedTools(session, tools).list()
    ]


def _invoker(session: ToolSource, tool: CatalogTool) -> Callable[[ToolContext[Any], str], Awaitable[Any]]:
    """The function that calls this tool with arguments as JSON text."""

    async def call(context: ToolContext[Any], arguments: str) -> Any:
        try:
            decoded = decode_strict((arguments or "{}").encode(), dict[str, Any], DEFAULT_LIMITS)
        except StrictJsonError as error:
            return f"BAD_ARGUMENT: The arguments are not a JSON object: {error}."
        try:
            result = await session.call(tool.name, decoded)
        except HoldfastError as error:
            return f"{error.code.name}: {error.message}"
        text = result_text(result)
        if not result.images:
            return text
        images = [
            ToolOutputImage(
                image_url=f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"
            )
            for image in result.images
        ]
        return [*([ToolOutputText(text=text)] if text else []), *images]

    return call
