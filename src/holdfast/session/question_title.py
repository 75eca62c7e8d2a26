"""The titles of permission questions, and the labels of tools in questions and events."""

import re

from holdfast.connect.catalog import CatalogTool
from holdfast.model.call import ToolCall
from holdfast.model.permission import Mode
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio
from holdfast.model.trust import Trust
from holdfast.model.visible_text import quote_line

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MAX_NAME = 128  # characters of a server's name in a question
_MAX_TITLE = 80  # characters of a tool's own title in a question


def question_title(tool_call: ToolCall, tool: CatalogTool, trust: Trust, mode: Mode) -> str:
    """The title of a permission question: the server and the tool, where the server runs, the server's title for the tool, and the sub-agent that calls it."""
    return tool_label(tool, f" ({_where_it_runs(tool.server, trust, mode)})") + _asker(tool_call)


def tool_label(tool: CatalogTool, after_name: str = "") -> str:
    """`server.tool`, then `after_name`, then the server's own title for the tool, in quotation marks.

    A server's name with unusual characters is quoted, so that it cannot look like another server's tool.
    """
    server = (
        tool.server.name
        if _PLAIN_NAME.fullmatch(tool.server.name)
        else quote_line(tool.server.name, _MAX_NAME)
    )
    title = quote_line(tool.definition.title, _MAX_TITLE) if tool.definition.title else ""
    return f"{server}.{tool.definition.name}{after_name}{title and ' '}{title}"


def _where_it_runs(server: ServerSpec, trust: Trust, mode: Mode) -> str:
    match server.transport:
        case InProcess(service="shell"):
            is_confined = trust is Trust.SANDBOXED or mode is Mode.AUTO
            return "confined" if is_confined else "with your rights, not confined"
        case InProcess():
            return "built in" if server.source is Source.BUILTIN else "in the application"
        case Http() | Sse():
            return "remote server"
        case Stdio():
            return (
                "confined server"
                if server.confinement is not None
                else "server with your rights, not confined"
            )


def _asker(tool_call: ToolCall) -> str:
    agent = tool_call.origin.agent
    return f", asked by the sub-agent {agent}" if agent else ""
