"""Warns about patterns that match no tool, once the tools are known."""

import logging
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from holdfast.model.permission import ToolPattern
from holdfast.model.similar_names import closest_tool
from holdfast.model.visible_text import to_line

log = logging.getLogger(__name__)

_MAX_COMPARED = 300  # difflib is slow with more names
_ALL = ("", "")  # `ToolPattern.tool` in the pattern `server.*`
_MAX_NAMED = 10  # tools that a warning names


class UnmatchedPatterns:
    """The patterns that have matched no tool yet. Each is warned about once."""

    def __init__(self, patterns: Iterable[ToolPattern]) -> None:
        self._left = dict.fromkeys(patterns)

    def check(self, known: Mapping[str, Collection[str] | None], other_servers: Collection[str] = ()) -> None:
        """Compare the patterns with the known tools of each server. None: a server's tools are not known.

        `other_servers` are also suggested in the warning.
        """
        for pattern in [*self._left]:
            if any(pattern.matches(server, tool) for server, tools in known.items() for tool in tools or ()):
                del self._left[pattern]
            elif not any(tools is None and pattern.matches_server(server) for server, tools in known.items()):
                del self._left[pattern]
                text = to_line(_describe(pattern, known, other_servers))
                log.warning("no tool matches %s in `tools`. %s", pattern, text)


def _describe(
    pattern: ToolPattern, known: Mapping[str, Collection[str] | None], other_servers: Collection[str]
) -> str:
    tools = [f"{server}.{tool}" for server, names in known.items() for tool in names or ()][:_MAX_COMPARED]
    if meant := closest_tool(str(pattern), tools):
        return f"Did you mean {meant!r}?"
    if pattern.tool == _ALL and (
        named := [tool for tool in tools if pattern.matches_server(tool.rpartition(".")[2])]
    ):
        return f"Did you mean {named[0]!r}? A name without a server, such as 'name', is read as 'name.*'."
    servers = sorted({*known, *other_servers})
    matching = [server for server in servers if pattern.matches_server(server)]
    if matching:
        offered = sorted(known.get(matching[0]) or ())
        more = ", …" if len(offered) > _MAX_NAMED else ""
        return f"The tools of {matching[0]!r} are: {', '.join(offered[:_MAX_NAMED]) or 'none'}{more}."
    close = get_close_matches("*".join(pattern.server), servers[:_MAX_COMPARED], n=1)
    suggestion = (
        f"Did you mean {close[0]!r}?" if close else f"The servers are: {', '.join(servers) or 'none'}."
    )
    return f"The session has no such server. {suggestion}"
