"""Which of a session's tools an adapter offers, and what a model is shown of a result."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from holdfast.agent.agent import TurnContext
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.session.session import Session
from holdfast.session.unmatched_patterns import UnmatchedPatterns

ToolSource: TypeAlias = Session | TurnContext
"""A session; or one of its turns, for an agent that answers in it."""


class OfferedTools:
    """The tools of a session that match one of the patterns. The log warns once about a pattern that matches none."""

    def __init__(self, session: ToolSource, tools: Sequence[str] | None) -> None:
        self._session = session
        self._patterns = _parse_patterns(tools)
        self._unmatched = UnmatchedPatterns(self._patterns or ())

    async def list(self) -> list[CatalogTool]:
        """The tools that the session offers now, and that match."""
        offered, patterns = await self._session.tools(), self._patterns
        if patterns is None:
            return [*offered]
        listed = _listed_names(self._session)
        names: dict[str, list[str]] = {}
        for tool in offered:
            names.setdefault(tool.server.name, []).append(tool.definition.name)
        # None for each server whose tools are not known yet: a pattern may match one of them later.
        unknown = dict.fromkeys(server for server, tool_names in listed.items() if tool_names is None)
        self._unmatched.check({**unknown, **names}, [*listed])
        return [
            tool
            for tool in offered
            if any(pattern.matches(tool.server.name, tool.definition.name) for pattern in patterns)
        ]


def _listed_names(session: ToolSource) -> Mapping[str, Collection[str] | None]:
    """By server: the names of the tools that it has listed; None if they are not known yet.

    A turn context has no such names, so each available server of a turn has an empty list.
    """
    if isinstance(session, Session):
        return session.listed_names
    status = session.server_status()
    return {**dict.fromkeys(status.available, ()), **dict.fromkeys(status.starting)}


def _parse_patterns(tools: Sequence[str] | None) -> tuple[ToolPattern, ...] | None:
    """The patterns of the tools to offer. None stands for all tools."""
    if tools is None:
        return None
    if isinstance(tools, str):
        raise HoldfastError(codes.BAD_ARGUMENT, "`tools` must be a list of strings, not one string.")
    try:
        return parse_tool_patterns([*tools])
    except ValueError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"`tools` {error}.") from None


def result_text(result: ToolResult) -> str:
    """What a model is shown of a result, besides its images."""
    text = result.text
    if text or result.images:
        return text
    return "" if result.data is None else str(result.data)
