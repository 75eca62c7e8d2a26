"""A session's tools as a toolset of pydantic-ai."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from holdfast.adapters.offered_tools import OfferedTools, ToolSource, result_text
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema())
_MAX_RETRIES = 3  # how often the model may repeat a call after invalid arguments


class SessionToolset(AbstractToolset[AgentDepsT]):
    """The tools of a session. The session checks arguments and permission, and records every call."""

    def __init__(self, session: ToolSource, tools: Sequence[str] | None = None) -> None:
        self._session = session
        self._tools = OfferedTools(session, tools)

    @property
    def id(self) -> str:
        """The session's id, so that one agent can use the toolsets of two sessions."""
        return self._session.context.session_id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools that the session offers now."""
        return {
            tool.model_name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.model_name,
                    description=tool.description or None,
                    parameters_json_schema=dict[str, Any](tool.schema),
                ),
                max_retries=_MAX_RETRIES,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in await self._tools.list()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Call a tool. The model may correct invalid arguments. It reads the result of any other call that failed."""
        try:
            result = await self._session.call(name, tool_args)
        except HoldfastError as error:
            if error.code is codes.BAD_ARGUMENT:  # a NaN or an infinity
                raise ModelRetry(error.message) from None
            raise
        if result.code == codes.BAD_ARGUMENT.name:
            raise ModelRetry(result.message or result.text)
        images = [BinaryContent(image.data, media_type=image.mime_type) for image in result.images]
        text = result_text(result)
        shown = [*([text] if text else []), *images]
        return ToolReturn(return_value=shown if images else text, metadata=result)
