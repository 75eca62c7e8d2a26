"""The agent without a model: the user lists and calls tools by typing commands."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.agent.agent import Command, TurnContext
from holdfast.agent.describe_arguments import (
    describe_arguments,
    example_arguments,
    required_arguments,
    shorten,
)
from holdfast.agent.parse_commands import CALL, ParsedCommand, parse_commands
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.event import StopReason
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, STORED_BUDGET, Budget
from holdfast.model.server import FILES_SERVER
from holdfast.wire.lines import LONG_BYTES
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.strict_json import StrictJsonError, decode_strict

COMMANDS = (
    Command(
        name="tools",
        description="List all tools or those of one server, or describe one tool",
        hint="[server | server.tool]",
    ),
    Command(name="call", description="Call a tool", hint='server.tool {"argument": "value"}'),
    Command(name="servers", description="List the servers, and which were refused"),
    Command(name="why", description="Show why a server was refused, and its warnings", hint="server"),
    Command(name="help", description="List the commands"),
)
HELP = """This session has no model: you call the tools yourself. Type:

    /tools                       list all tools
    /tools server                list one server's tools, with their required arguments
    /tools server.tool           describe one tool and its arguments
    /call server.tool {json}     call a tool; the JSON may span several lines, and several calls run at once
    /servers                     list the servers, and which were refused
    /why server                  show why a server was refused, and its warnings
    /help                        show this text
"""
_ON_LOOP = Budget(bytes=LONG_BYTES, values=1000)  # a larger result is formatted in a thread
_MAX_TEXT = 4000
_MAX_BLOCKS = 100  # of a result that is too large to be decoded whole
_MAX_TYPES, _MAX_TYPE_LENGTH = 10, 40
_MAX_LINE = 200  # of a list of tools
_ACCESS_COST = 4096  # finding the rule for a tool may take as long as reading this many bytes


class ManualAgent:
    """Runs the commands of a prompt; answers other text with the list of commands."""

    commands = COMMANDS

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        """Run the commands of the prompt in order, then all calls at the same time."""
        commands = parse_commands(blocks)
        for command in commands:
            if command.slash_name not in ("", CALL):
                await turn.reply(await _run_command(command, turn))
        calls = [command for command in commands if command.slash_name == CALL]
        for text in await asyncio.gather(*(_run_call(command, turn) for command in calls)):
            await turn.reply(text)
        if not commands or any(not command.slash_name for command in commands):
            await turn.reply(HELP)
        return StopReason.END_TURN


async def _run_command(command: ParsedCommand, turn: TurnContext) -> str:
    match command.slash_name:
        case "/tools":
            return await _list_tools(turn, command.argument)
        case "/servers":
            return _list_servers(turn)
        case "/why":
            return _explain_server(turn, command.argument)
        case "/help":
            return HELP
        case _:
            return f"There is no command {command.slash_name[:80]}. /help lists the commands.\n"


async def _run_call(command: ParsedCommand, turn: TurnContext) -> str:
    name, *given = command.argument.split(maxsplit=1)[:2] or [""]
    if not name:
        return "/call needs a tool: /call server.tool {json}. /tools lists the tools.\n"
    if command.is_unclosed:
        return f"The JSON for {name} is incomplete: a bracket is not closed. Nothing was called; complete the JSON and send it again.\n"
    try:
        arguments = decode_strict("".join(given or "{}").encode(), dict[str, Any], DEFAULT_LIMITS)
    except (StrictJsonError, UnicodeEncodeError) as error:
        return (
            f"The arguments of {name} are not a JSON object: {error}. Nothing was called. "
            f'Write /call {name} {{"key": "value"}}; /tools {name} describes its arguments.\n'
        )
    result = await turn.call(name, arguments)
    is_large = result.exceeds(_ON_LOOP)
    return await _run_in_thread_if_large(turn, _format_result, name, result, is_large=is_large)


async def _run_in_thread_if_large(
    turn: TurnContext, function: Callable[..., str], *args: Any, is_large: bool
) -> str:
    """Call the function, in a thread if it reads much."""
    if not is_large:
        return function(*args)
    return await PARSE_THREADS.run(function, *args, owner=f"turn {id(turn)}")


def _format_result(name: str, result: ToolResult) -> str:
    if result.exceeds(STORED_BUDGET):
        types, text = _read_start(result)
        shown = f"{text[:_MAX_TEXT]}… ({result.size} bytes in all)"
    else:
        blocks = result.content
        types = [str(block.get("type")) for block in blocks if block.get("type") != "text"]
        text = _result_text(name, result, blocks) or ("" if types else "(empty)")
        shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters in all)"
    others = ", ".join(kind[:_MAX_TYPE_LENGTH] for kind in types[:_MAX_TYPES])
    more = ", …" if len(types) > _MAX_TYPES else ""
    not_shown = f"({others}{more} not shown)" if types else ""
    lines = "\n".join(filter(None, (shown, not_shown)))
    return f"{name}{'' if result.ok else ' failed'}:\n{lines}\n"


def _read_start(result: ToolResult) -> tuple[list[str], str]:
    """For a result that is too large to be decoded whole: the types of the blocks without text, and the start of the text."""
    blocks = result.first_blocks(_MAX_BLOCKS, _MAX_TEXT)
    text = "\n".join(block.text for block in blocks if block.type == "text")
    return [block.type for block in blocks if block.type != "text"], text or result.data_start(_MAX_TEXT)


def _result_text(name: str, result: ToolResult, blocks: Sequence[JsonObject]) -> str:
    """The result as text; a toolkit envelope is unpacked."""
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    match result.data:
        case {"ok": True, "_meta": dict(), "text": str(unpacked)}:
            return unpacked
        case {"ok": True, "_meta": dict(), **data}:
            # The diff of a built-in file tool is rendered separately.
            shown = {
                key: value
                for key, value in data.items()
                if key != "diff" or not name.startswith(f"{FILES_SERVER}.")
            }
            return json.dumps(shown, indent=2, ensure_ascii=False)
        case {"ok": False, "code": str(code), "error": str(error), "hint": str(hint), **more}:
            return f"{code}: {error} {hint}{''.join(format_issues(more.get('details')))}"
        case data if result.ok and not text and data is not None:
            return json.dumps(data, indent=2, ensure_ascii=False)
        case _:
            return f"{text} {_hint(result)}".rstrip()


def _hint(result: ToolResult) -> str:
    """What to do about a failure; empty if the call was not permitted, because its message says enough."""
    known = codes.find(result.code)
    return known.hint if known is not None and known is not codes.NOT_PERMITTED else ""


def format_issues(details: Json) -> Iterator[str]:
    """A line for each invalid argument. Each begins with a newline."""
    match details:
        case {"issues": list() as issues}:
            for issue in issues:
                match issue:
                    case {"field": str(field), "message": str(message)}:
                        yield f"\n- {field}: {message}"
                    case _:
                        pass
        case _:
            pass


async def _list_tools(turn: TurnContext, name: str) -> str:
    """List all tools, or those of the server with this name, or describe the tool with this name."""
    tools = await turn.tools()
    size = sum(len(tool.definition.input_schema) + _ACCESS_COST for tool in tools)
    is_large = size > LONG_BYTES
    if name:
        shown = await _run_in_thread_if_large(turn, _describe_named, turn, tools, name, is_large=is_large)
        return shown or _explain_no_tools(turn, name)
    shown = await _run_in_thread_if_large(turn, _list_all, turn, tools, is_large=is_large)
    none = "This session has no tools. /servers lists the servers and their state.\n"
    return (shown or none) + _list_starting(turn)


def _list_all(turn: TurnContext, tools: Sequence[CatalogTool]) -> str:
    return "".join(f"- {tool.name} [{turn.describe_access(tool)}]{_first_line(tool)}\n" for tool in tools)


def _describe_named(turn: TurnContext, tools: Sequence[CatalogTool], name: str) -> str:
    """The tools of the server with this name, or else the tool with this name. Empty if there is neither."""
    if server_tools := [tool for tool in tools if tool.server.name == name]:
        return "".join(_summarize_tool(turn, tool) for tool in server_tools)
    return next((_describe_tool(turn, tool) for tool in tools if name in (tool.name, tool.model_name)), "")


def _summarize_tool(turn: TurnContext, tool: CatalogTool) -> str:
    needs = shorten(", ".join(required_arguments(tool.definition)), _MAX_LINE)
    access = turn.describe_access(tool)
    return f"- {tool.name} ({needs or 'no arguments required'}) [{access}]{_first_line(tool)}\n"


def _describe_tool(turn: TurnContext, tool: CatalogTool) -> str:
    definition = tool.definition
    title = f"{tool.name}: {definition.title}" if definition.title else tool.name
    description = f"{definition.description.strip()}\n\n" if definition.description else ""
    return (
        f"{title}\n\n{description}{describe_arguments(definition)}\nPermission: {turn.describe_access(tool)}\n\n"
        f"    /call {tool.name} {example_arguments(definition)}\n"
    )


def _first_line(tool: CatalogTool) -> str:
    line = (tool.definition.description or tool.definition.title or "").strip().partition("\n")[0]
    return f"  {shorten(line, _MAX_LINE)}" if line else ""


def _list_starting(turn: TurnContext) -> str:
    starting = turn.server_status().starting
    return f"Still starting: {', '.join(starting)}. Their tools are not listed yet.\n" if starting else ""


def _explain_no_tools(turn: TurnContext, name: str) -> str:
    if name in turn.server_status().starting:
        return f"{name} is still starting; its tools are not known yet.\n"
    if name in dict(_server_states(turn)):
        return f"{name} has no tools now. /why {name} may show the reason.\n"
    return f"There is no server or tool {name[:80]!r} here. /tools lists the tools, /servers the servers.\n{_list_starting(turn)}"


def _list_servers(turn: TurnContext) -> str:
    return (
        "".join(f"- {name}: {state}\n" for name, state in _server_states(turn)) or "There are no servers.\n"
    )


def _server_states(turn: TurnContext) -> Iterator[tuple[str, str]]:
    status = turn.server_status()
    yield from ((name, "available") for name in status.available)
    yield from ((name, "starting") for name in status.starting)
    yield from ((refusal.server, f"refused ({refusal.stage})") for refusal in status.refusals)
    for name, unapproved in status.awaiting_approval.items():
        if unapproved:
            yield (
                name,
                "1 tool awaits approval"
                if len(unapproved) == 1
                else f"{len(unapproved)} tools await approval",
            )


def _explain_server(turn: TurnContext, server: str) -> str:
    if not server:
        return f"/why needs a server: /why server. The servers are:\n\n{_list_servers(turn)}"
    status = turn.server_status()
    lines = [f"{refusal.stage}: {refusal.reason}" for refusal in status.refusals if refusal.server == server]
    lines += [f"warning: {warning.text}" for warning in status.warnings if warning.server == server]
    if unapproved := status.awaiting_approval.get(server):
        lines.append(
            f"awaiting approval: {', '.join(unapproved)}. To review and approve them, run: holdfast servers approve"
        )
    if not lines:
        known = server in (*status.available, *status.starting)
        unknown = f"There is no server {server[:80]!r} here. /servers lists them."
        lines = [f"{server} was not refused." if known else unknown]
    return "\n".join(lines) + "\n"
