"""A session's tools as tools of LangChain."""

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from holdfast.adapters.offered_tools import OfferedTools, result_text
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.session.session import Session


async def make_tools(session: Session, tools: Sequence[str] | None) -> list[BaseTool]:
    """Make one async tool for each of the session's tools. A failure becomes a message with the status `error`."""
    return [
        StructuredTool(
            name=tool.model_name,
            description=tool.description or tool.name,
            args_schema=_schema(tool),
            coroutine=_caller(session, tool),
            response_format="content_and_artifact",
            handle_tool_error=True,
            metadata={"holdfast_tool": tool.name},
        )
        for tool in await OfferedTools(session, tools).list()
    ]


def _caller(session: Session, tool: CatalogTool) -> Callable[..., Awaitable[tuple[Any, ToolResult]]]:
    async def call(**arguments: Any) -> tuple[Any, ToolResult]:
        result = await session.call(tool.name, arguments)
        if not result.ok:
            raise ToolException(result_text(result))
        return _content(result), result

    return call


def _content(result: ToolResult) -> str | list[dict[str, Any]]:
    images = [
        {"type": "image", "base64": base64.b64encode(image.data).decode(), "mime_type": image.mime_type}
        for image in result.images
    ]
    text = result_text(result)
    if not images:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _schema(tool: CatalogTool) -> dict[str, Any]:
    return {"properties": {}, **tool.schema, "title": tool.model_name, "description": tool.description}
