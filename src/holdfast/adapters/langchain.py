"""A session's tools as tools of LangChain."""

import base64
from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from holdfast.adapters.offered_tools import OfferedTools, ToolSource, result_text
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.errors import HoldfastError


async def make_tools(session: ToolSource, tools: Sequence[str] | None) -> list[BaseTool]:
    """Make an async tool for each of the session's tools that match `tools`. A failed call becomes a message with the status `error`."""
    return [SessionTool(session, tool) for tool in await OfferedTools(session, tools).list()]


class SessionTool(BaseTool):
    """One tool of a session. Its arguments may have any names, even those that LangChain uses itself, such as `config`."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _session: ToolSource = PrivateAttr()
    _tool: CatalogTool = PrivateAttr()

    def __init__(self, session: ToolSource, tool: CatalogTool) -> None:
        super().__init__(
            name=tool.model_name,
            description=tool.description or tool.name,
            args_schema=_schema(tool),
            metadata={"holdfast_tool": tool.name},
        )
        self._session, self._tool = session, tool

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        raise NotImplementedError("The tools of a session are async: use ainvoke, or an agent's ainvoke.")

    async def _arun(self, /, *args: Any, **arguments: Any) -> tuple[Any, ToolResult]:
        try:
            result = await self._session.call(self._tool.name, arguments)
        except HoldfastError as error:
            if error.code is codes.BAD_ARGUMENT:  # a NaN or an infinity
                raise ToolException(f"{error.code.name}: {error.message}") from None
            raise
        if not result.ok:
            raise ToolException(result_text(result))
        return _content(result), result


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
