"""The tools of a session, for other libraries. Each function imports its library when it is called.

Calls go through the session: its permission policy, its context, its record and its audit apply as to any other call.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.session.session import Session

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import BaseTool

    from holdfast.adapters.mcp_session import McpSession
    from holdfast.adapters.pydantic_ai import SessionToolset

__all__ = ["client_session", "langchain_tools", "openai_agents_tools", "pydantic_ai_toolset"]


def pydantic_ai_toolset(session: Session, *, tools: Sequence[str] | None = None) -> "SessionToolset[Any]":
    """A pydantic-ai toolset: `Agent(model, toolsets=[pydantic_ai_toolset(session)])`.

    `tools` are patterns such as `counter.add` or `files.*`; by default, all tools of the session. The tools are listed again
    at every step, so servers that start or change are noticed.
    """
    from holdfast.adapters.pydantic_ai import SessionToolset

    return SessionToolset(session, tools)


async def langchain_tools(session: Session, *, tools: Sequence[str] | None = None) -> "list[BaseTool]":
    """The session's tools for LangChain and LangGraph: async tools, whose messages have the `ToolResult` as artifact."""
    from holdfast.adapters.langchain import make_tools

    return await make_tools(session, tools)


async def openai_agents_tools(
    session: Session, *, tools: Sequence[str] | None = None
) -> "list[FunctionTool]":
    """The session's tools for the OpenAI Agents SDK, to be passed as `tools` of an `Agent`."""
    from holdfast.adapters.openai_agents import make_tools

    return await make_tools(session, tools)


def client_session(session: Session, server: str) -> "McpSession":
    """One server of the session, with the methods and results of the MCP SDK's `ClientSession`."""
    from holdfast.adapters.mcp_session import McpSession

    return McpSession(session, server)
