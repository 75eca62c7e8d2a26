"""The tools of a session, for other libraries. Each function imports its library when it is called.

An agent that answers in a session passes the context of its turn instead of the session, so that its calls belong to the turn.
`client_session` takes only a session.
Calls go through the session: its permission policy applies, and its events and the audit record them like any other call.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.agent.agent import TurnContext
from holdfast.model import codes
from holdfast.model.async_block import AsyncBlock
from holdfast.model.errors import HoldfastError
from holdfast.model.parse_text import bad_type
from holdfast.session.session import Session
from holdfast.session.turn_context import SessionTurnContext

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import BaseTool

    from holdfast.adapters.mcp_session import ClientSessionAdapter
    from holdfast.adapters.pydantic_ai import SessionToolset

__all__ = ["client_session", "langchain_tools", "openai_agents_tools", "pydantic_ai_toolset"]


def pydantic_ai_toolset(
    session: Session | TurnContext, *, tools: Sequence[str] | None = None
) -> "SessionToolset[Any]":
    """A pydantic-ai toolset: `Agent(model, toolsets=[pydantic_ai_toolset(session)])`.

    `tools` are patterns such as `counter.add` or `files.*`; by default, all tools of the session. The tools are listed again
    at every step, so servers that start or change are noticed.
    """
    _check_source(session)
    with _needs("pydantic-ai-slim"):
        from holdfast.adapters.pydantic_ai import SessionToolset

    return SessionToolset(session, tools)


async def langchain_tools(
    session: Session | TurnContext, *, tools: Sequence[str] | None = None
) -> "list[BaseTool]":
    """The session's tools for LangChain and LangGraph: async tools. The message of a successful call has the `ToolResult` as its artifact."""
    _check_source(session)
    with _needs("langchain-core"):
        from holdfast.adapters.langchain import make_tools

    return await make_tools(session, tools)


async def openai_agents_tools(
    session: Session | TurnContext, *, tools: Sequence[str] | None = None
) -> "list[FunctionTool]":
    """The session's tools for the OpenAI Agents SDK, to be passed as `tools` of an `Agent`."""
    _check_source(session)
    with _needs("openai-agents"):
        from holdfast.adapters.openai_agents import make_tools

    return await make_tools(session, tools)


def client_session(session: Session, server: str) -> "ClientSessionAdapter":
    """One server of the session, with the methods and results of the MCP SDK's `ClientSession`."""
    _check_session(session)
    with _needs("mcp"):
        from holdfast.adapters.mcp_session import ClientSessionAdapter

    return ClientSessionAdapter(session, server)


def _check_source(session: object) -> None:
    """Raise unless it is a session of the async host, or a turn of one."""
    if not isinstance(session, SessionTurnContext):
        _check_session(session)


def _check_session(session: object) -> None:
    """Raise unless it is a session of the async host."""
    if isinstance(session, Session):
        return
    if type(session).__module__ == "holdfast.sync":
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "An adapter needs a session of the async `holdfast.Host`, not one of `holdfast.sync`: these libraries are async.",
        )
    if isinstance(session, AsyncBlock):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "The session is not open. Write: async with host.session(…) as session:",
        )
    raise bad_type("session", "an open session of `holdfast.Host`", session)


@contextmanager
def _needs(package: str) -> Iterator[None]:
    """Name the package to install if a library is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "holdfast":
            raise
        raise ModuleNotFoundError(
            f"This adapter needs the package {package!r}, which is not installed (no module {error.name!r}). "
            f"Install it: {shlex.join(('pip', 'install', package))}",
            name=error.name,
        ) from error
