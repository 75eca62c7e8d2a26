"""The agent that runs slash commands, with which the user lists and calls tools.

`ModelAgent` uses it for prompts that begin with a command, and for all prompts if the session has no model.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from holdfast.agent.agent import TurnContext
from holdfast.agent.command_list import COMMAND_NAMES, COMMANDS, HELP
from holdfast.agent.describe_arguments import (
    describe_arguments,
    describe_json_error,
    example_arguments,
    example_object,
    required_arguments,
    shorten,
)
from holdfast.agent.file_results import format_file_result
from holdfast.agent.long_results import LongResults
from holdfast.agent.parse_commands import CALL, ParsedCommand, describe_unclosed, parse_commands
from holdfast.agent.resources_and_prompts import show_prompts, show_resources
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.log_files import logs_command
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT_LIMITS, STORED_LIMIT, SizeLimit
from holdfast.model.meta_keys import ENVELOPE_KEY
from holdfast.model.server import FILES_SERVER
from holdfast.model.similar_names import closest_tool, suggest_name
from holdfast.model.visible_text import display_name
from holdfast.resolve.screen_tools import approve_command, describe_hints_awaiting_approval
from holdfast.wire.message_memory import LONG_LINE_BYTES
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.strict_json import StrictJsonError, decode_strict

NO_MODEL = "This session has no model, and only a model can answer another agent. Choose one with /model provider:model.\n"
_UNANSWERED = (
    "The session has no model or agent, so only commands such as /help are answered. Pass `model` or `agent` to the session, "
    "or choose a model with `holdfast model`."
)
_NOT_SENT = "Text after a command is not sent to the model. Send it as a prompt of its own."
_MAX_ON_LOOP = SizeLimit(bytes=LONG_LINE_BYTES, values=1000)  # a larger result is formatted in a thread
# How many characters and blocks are shown of a result that is too large to be decoded as a whole.
_MAX_START = 3000
_MAX_BLOCKS = 100
# How many types of blocks that are not shown are named, and with how many characters.
_MAX_TYPES, _MAX_TYPE_LENGTH = 10, 40
_MAX_LINE = 200  # characters of a line in a list of tools
_MAX_LOG_LINES = 40
_MAX_COMPARED = 300  # difflib is slow with more names
_INDENT = 4  # the chat puts a bar before lines that are indented by one or two spaces
_ACCESS_COST = 4096  # finding the permission rule for a tool can take as long as reading this many bytes


CommandHandler = Callable[[str, TurnContext], Awaitable[str]]
"""Runs a command with its argument, and returns the reply."""


class SlashCommandAgent:
    """Runs the slash commands of a prompt.

    All other text is answered with the list of commands or, if there is a model, with the advice to send the text as a prompt of its own.
    """

    commands = COMMANDS

    def __init__(
        self,
        handlers: Mapping[str, CommandHandler] | None = None,
        has_model: Callable[[], bool] = lambda: False,
    ) -> None:
        """`handlers` are further commands, by their names with the slash, such as `/model`."""
        self._handlers = handlers or {}
        self._has_model = has_model
        self._long_results = LongResults()

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        """Run the commands of the prompt in order, then all calls at the same time."""
        if turn.sender or turn.origin.agent:  # text of another agent is never a command of the user
            turn.report_failure(HoldfastError(codes.NO_MODEL, NO_MODEL.strip()))
            await turn.reply(NO_MODEL)
            return StopReason.END_TURN
        commands = parse_commands(blocks)
        session = turn.context.session_id
        for command in commands:
            if command.slash_name not in ("", CALL):
                await turn.reply(await self._run(command, turn))
        calls = [command for command in commands if command.slash_name == CALL]
        if calls:
            self._long_results.forget(session)
        for text in await asyncio.gather(*(_run_call(command, turn) for command in calls)):
            await turn.reply(self._long_results.first_part(session, text))
        if not commands or any(not command.slash_name for command in commands):
            if commands and self._has_model():
                await turn.reply(_report(turn, _NOT_SENT))
            else:
                turn.report_failure(HoldfastError(codes.NO_MODEL, _UNANSWERED))
                await turn.reply(HELP)
        return StopReason.END_TURN

    async def _run(self, command: ParsedCommand, turn: TurnContext) -> str:
        session = turn.context.session_id
        if command.slash_name == "/more":
            return self._long_results.next_part(session)
        handler = self._handlers.get(command.slash_name)
        text = await (_run_command(command, turn) if handler is None else handler(command.argument, turn))
        self._long_results.forget(session)
        return self._long_results.first_part(session, text)


async def _run_command(command: ParsedCommand, turn: TurnContext) -> str:
    match command.slash_name:
        case "/tools":
            return await _list_tools(turn, command.argument)
        case "/servers":
            return _list_servers(turn)
        case "/why":
            return await _explain_server(turn, command.argument)
        case "/resources":
            return await show_resources(turn, command.argument)
        case "/prompts":
            return await show_prompts(turn, command.argument)
        case "/logs":
            return await _show_log(turn, command.argument)
        case "/help":
            return HELP
        case _:
            # Compared without the slash, because it would make all names similar.
            known = [name.removeprefix("/") for name in sorted(COMMAND_NAMES)]
            close = get_close_matches(command.slash_name[1:80].lower(), known, n=1)
            suggestion = f" Did you mean /{close[0]}?" if close else ""
            unknown = f"There is no command {command.slash_name[:80]}.{suggestion} /help lists the commands."
            return _report(turn, unknown)


async def _run_call(command: ParsedCommand, turn: TurnContext) -> str:
    name, given = await _split_call(command.argument, turn)
    if not name:
        return _report(turn, "/call needs a tool: /call server.tool {json}. /tools lists the tools.")
    if command.is_unclosed:
        return _report(
            turn,
            f"The JSON for {name} is incomplete: {describe_unclosed(command.argument)} is not closed. Nothing was called;"
            " complete the JSON and send it again.",
        )
    text = given or "{}"
    try:
        arguments = decode_strict(text.encode(), dict[str, Any], DEFAULT_LIMITS)
    except (StrictJsonError, UnicodeEncodeError) as error:
        return _report(
            turn,
            f"The arguments of {name} are not a JSON object{describe_json_error(text, error)}. Nothing was called. "
            f"Write /call {name} {example_object(text)}; /tools {name} describes its arguments.",
        )
    result = await turn.call(name, arguments)
    if not result.ok:
        turn.report_failure(HoldfastError(codes.find(result.code) or codes.TOOL_FAILED, result.message))
    if "." not in name:  # a name as models use it; the reply shows the name that users see
        name = next((tool.name for tool in await turn.tools() if tool.model_name == name), name)
    is_large = result.exceeds(_MAX_ON_LOOP)
    log_hint = await _log_hint(turn, name) if result.code == codes.INTERNAL_ERROR.name else ""
    return await _run_in_thread_if_large(turn, _format_result, name, result, log_hint, is_large=is_large)


async def _split_call(argument: str, turn: TurnContext) -> tuple[str, str]:
    """The name of the tool in the argument of `/call`, and its arguments. The name of a server may contain spaces."""
    name, *rest = argument.split(maxsplit=1) or [""]
    given = "".join(rest)
    if given and not given.startswith("{"):
        names = [tool.name for tool in await turn.tools() if f"{argument} ".startswith(f"{tool.name} ")]
        name = max(names, key=len, default=name)
        given = argument.removeprefix(name).strip()
    return name, given


def _report(turn: TurnContext, message: str) -> str:
    """Report that a command could not be run. Return the reply."""
    turn.report_failure(HoldfastError(codes.BAD_ARGUMENT, message))
    return f"{message}\n"


async def _log_hint(turn: TurnContext, tool: str) -> str:
    """Say where the log of a tool's server is, after an unexpected error in the server."""
    server = tool.rpartition(".")[0]
    try:
        await turn.read_log(server)
    except HoldfastError as error:
        return f"This is a bug in the server. {error.message}"
    return f"This is a bug in the server. Its log has the details: /logs {server}"


async def _run_in_thread_if_large(
    turn: TurnContext, function: Callable[..., str], *args: Any, is_large: bool
) -> str:
    if not is_large:
        return function(*args)
    return await PARSE_THREADS.run(function, *args, owner=f"turn {id(turn)}")


def _format_result(name: str, result: ToolResult, log_hint: str) -> str:
    if result.exceeds(STORED_LIMIT):
        types, text = _read_start(result)
        shown = f"{text[:_MAX_START]}… ({result.size} bytes in all)"
    else:
        blocks = result.content
        types = [str(block.get("type")) for block in blocks if block.get("type") != "text"]
        text = _result_text(name, result, blocks, log_hint) or ("" if types else "(empty)")
        if result.state_lost and (notice := str(blocks[0].get("text", ""))) not in text:
            text = f"{notice}\n{text}"
        shown = text
    other_types = ", ".join(kind[:_MAX_TYPE_LENGTH] for kind in types[:_MAX_TYPES])
    more = ", …" if len(types) > _MAX_TYPES else ""
    not_shown = f"({other_types}{more} not shown)" if types else ""
    lines = "\n".join(filter(None, (shown, not_shown)))
    return f"{name}{'' if result.ok else ' failed'}:\n{lines}\n"


def _read_start(result: ToolResult) -> tuple[list[str], str]:
    """Return the types of the blocks without text, and the start of the text, of a result that is too large to be decoded whole."""
    blocks = result.first_blocks(_MAX_BLOCKS, _MAX_START)
    text = "\n".join(block.text for block in blocks if block.type == "text")
    return [block.type for block in blocks if block.type != "text"], text or result.start_of_data(_MAX_START)


def _result_text(name: str, result: ToolResult, blocks: Sequence[JsonObject], log_hint: str) -> str:
    """Return the result as text, without the toolkit's envelope. `log_hint` says where the server's log is."""
    if (failure := read_envelope(result)) is not None:
        has_log_hint = failure["code"] == codes.INTERNAL_ERROR.name and log_hint
        hint = log_hint if has_log_hint else str(failure["hint"])
        said = f"{failure['code']}: {failure['error']}"
        return f"{_add_sentence(said, hint)}{''.join(format_details(failure))}"
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    text = "\n".join(texts)
    match result.data:
        case {"ok": True, "_meta": dict(), "text": str(unpacked)} as envelope:
            return "\n".join((unpacked, *_other_texts(texts, envelope)))
        case {"ok": True, "_meta": dict(), **data} as envelope:
            if name.startswith(f"{FILES_SERVER}."):
                if (shown := format_file_result(data)) is not None:
                    return shown
                data.pop("diff", None)  # the diff is shown separately
            others = _other_texts(texts, envelope)
            match data:
                # JSON would show the lines as one line.
                case {"result": str(lines)} if len(data) == 1 and "\n" in lines:
                    return "\n".join((lines, *others))
                case _:
                    pass
            if not data and len(blocks) > 1:
                return "\n".join(others)
            return "\n".join((json.dumps(data, indent=_INDENT, ensure_ascii=False), *others))
        case data if result.ok and data is not None and (not text or _is_same(text, data)):
            return json.dumps(data, indent=_INDENT, ensure_ascii=False)
        case _:
            hint = _hint(result)
            return (text if hint in text else _add_sentence(text, hint)).rstrip()


def _is_same(text: str, data: Json) -> bool:
    """Whether the text is this data as JSON."""
    try:
        return text.startswith(("{", "[")) and json.loads(text) == data
    except (ValueError, RecursionError):
        return False


def _other_texts(texts: Sequence[str], envelope: JsonObject) -> list[str]:
    """Return the texts of a result that follow the one with its envelope; none if there is no such text."""
    for number, text in enumerate(texts[:2]):  # the first may say that the server was restarted
        try:
            if text.startswith("{") and json.loads(text) == envelope:
                return list(texts[number + 1 :])
        except ValueError:
            pass
    return []


def _add_sentence(text: str, sentence: str) -> str:
    """Add a sentence to a message. The sentence begins a new line if the message ends with a command or a line of a server's standard error."""
    last = text.rstrip().rpartition("\n")[2]
    is_sentence = last.endswith((".", "!", "?")) and not last.startswith("| ")
    return f"{text}{' ' if is_sentence else chr(10)}{sentence}"


def _hint(result: ToolResult) -> str:
    """Say what to do about a failure. Empty if the call was not permitted, because the message then already says what to do."""
    known = codes.find(result.code)
    return known.hint if known is not None and known is not codes.NOT_PERMITTED else ""


def read_envelope(result: ToolResult) -> JsonObject | None:
    """Return the envelope of a call that failed, from the content or from `_meta`; None if it succeeded, or has no envelope."""
    if result.ok:
        return None
    in_meta = result.result.meta.get(ENVELOPE_KEY)
    envelope = in_meta if isinstance(in_meta, dict) else result.data
    match envelope:
        case {"ok": False, "code": str(), "error": str(), "hint": str()}:
            return cast("JsonObject", envelope)
        case _:
            return None


def format_details(failure: JsonObject) -> Iterator[str]:
    """Yield a line for each detail of a failure. Problems of arguments (`issues`) that the message describes already are left out.

    Each line begins with a newline.
    """
    details = failure.get("details")
    if not isinstance(details, dict):
        return
    said = str(failure.get("error", ""))
    for name, detail in details.items():
        match detail:
            case list() if name == "issues":
                for issue in detail:
                    match issue:
                        case {"field": str(field), "message": str(message)} if message not in said:
                            yield f"\n- {field}: {message}"
                        case _:
                            pass
            case str():
                yield f"\n- {name}:{chr(10) if chr(10) in detail else ' '}{detail}"
            case list() if all(isinstance(item, str) for item in detail):
                yield f"\n- {name}: {', '.join(map(str, detail))}"
            case _:
                yield f"\n- {name}: {json.dumps(detail, ensure_ascii=False)}"


async def _list_tools(turn: TurnContext, name: str) -> str:
    """List all tools, or those of the server with this name, or describe the tool with this name."""
    tools = await turn.tools()
    size = sum(len(tool.definition.input_schema) + _ACCESS_COST for tool in tools)
    is_large = size > LONG_LINE_BYTES
    if name:
        shown = await _run_in_thread_if_large(turn, _describe_named, turn, tools, name, is_large=is_large)
        return shown + _list_awaiting_approval(turn, name) or _explain_no_tools(turn, name, tools)
    shown = await _run_in_thread_if_large(turn, _list_all, turn, tools, is_large=is_large)
    unapproved = _list_awaiting_approval(turn)
    no_tools = "This session has no tools. /servers lists the servers and their state.\n"
    return (shown + unapproved or no_tools) + _list_starting(turn)


def _list_all(turn: TurnContext, tools: Sequence[CatalogTool]) -> str:
    return "".join(f"- {tool.name} [{turn.describe_access(tool)}]{_first_line(tool)}\n" for tool in tools)


def _describe_named(turn: TurnContext, tools: Sequence[CatalogTool], name: str) -> str:
    """Describe the tools of the server with this name, or else the tool with this name. Empty if there is neither."""
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


def _list_awaiting_approval(turn: TurnContext, name: str = "") -> str:
    """List the tools that await approval: all, or the one with this name, or those of the server with this name."""
    lines: list[str] = []
    for server, tools in turn.server_status().awaiting_approval.items():
        names = [f"{server}.{tool}" for tool in tools]
        lines += (
            f"- {tool} [awaits approval: {approve_command(server)}]\n"
            for tool in names
            if name in ("", server, tool)
        )
    lines += (
        f"{describe_hints_awaiting_approval(server)}\n"
        for server in turn.server_status().without_hints
        if name in ("", server) or name.startswith(f"{server}.")
    )
    return "".join(lines)


def _list_starting(turn: TurnContext) -> str:
    starting = turn.server_status().starting
    return (
        f"Still starting: {', '.join(map(display_name, starting))}. Their tools are not listed yet.\n"
        if starting
        else ""
    )


def _explain_no_tools(turn: TurnContext, name: str, tools: Sequence[CatalogTool]) -> str:
    if name in turn.server_status().starting:
        return f"{name} is still starting; its tools are not known yet.\n"
    if name in dict(_server_states(turn)):
        return f"{name} has no tools now. /why {name} may show the reason.\n"
    if meant := closest_tool(name, (tool.name for tool in tools[:_MAX_COMPARED])) if "." in name else "":
        suggestion = f" Did you mean {meant!r}?"
    else:
        suggestion = suggest_name(name, dict(_server_states(turn)))
    unknown = f"There is no server or tool {name[:80]!r} here.{suggestion}"
    return f"{unknown} /tools lists the tools, /servers the servers.\n{_list_starting(turn)}"


def _list_servers(turn: TurnContext) -> str:
    return (
        "".join(f"- {display_name(name)}: {state}\n" for name, state in _server_states(turn))
        or "There are no servers.\n"
    )


def _server_states(turn: TurnContext) -> Iterator[tuple[str, str]]:
    status = turn.server_status()
    for name in status.available:
        if name in status.restart_errors:
            yield (
                name,
                f"keeps failing, so its restart is delayed; /why {display_name(name)} shows the reason",
            )
        else:
            yield name, "ended; the next call starts it again" if name in status.ended else "available"
    yield from ((name, "starting") for name in status.starting)
    for refusal in status.refusals:
        why = f"/why {display_name(refusal.server)}"
        has_namesake = refusal.server in (*status.available, *status.starting)
        refused = "another server with this name was refused" if has_namesake else "refused"
        yield refusal.server, f"{refused}; {why} shows the reason"
    for name, unapproved in status.awaiting_approval.items():
        yield (
            name,
            "1 tool awaits approval" if len(unapproved) == 1 else f"{len(unapproved)} tools await approval",
        )


async def _explain_server(turn: TurnContext, server: str) -> str:
    if not server:
        return f"/why needs a server: /why server. The servers are:\n\n{_list_servers(turn)}"
    status = turn.server_status()
    lines = [f"{refusal.stage}: {refusal.reason}" for refusal in status.refusals if refusal.server == server]
    lines += [f"warning: {warning.text}" for warning in status.warnings if warning.server == server]
    if unapproved := status.awaiting_approval.get(server):
        lines.append(
            f"awaiting approval: {', '.join(map(display_name, unapproved))}. To review and approve them, run: {approve_command(server)}"
        )
    if server in status.without_hints:
        lines.append(describe_hints_awaiting_approval(server))
    if error := status.restart_errors.get(server):
        lines.append(error)
    elif server in status.ended:
        lines.append(
            f"{server} has ended; the next call starts it again. /logs {server} shows what it has written."
        )
    known = server in (*status.available, *status.starting)
    if not known and await turn.was_added_later(server):
        change = "approved or corrected" if lines else "added"
        lines.append(f"{server} was {change} after this session began. To use it, open a new session.")
    if not lines:
        suggestion = suggest_name(server, dict(_server_states(turn)))
        unknown = f"There is no server {server[:80]!r} here.{suggestion} /servers lists the servers."
        lines = [f"{server} was not refused." if known else unknown]
    return "\n".join(lines) + "\n"


async def _show_log(turn: TurnContext, server: str) -> str:
    if not server:
        return f"/logs needs a server: /logs server. The servers are:\n\n{_list_servers(turn)}"
    try:
        lines = (await turn.read_log(server)).splitlines()
    except HoldfastError as error:
        return f"{_add_sentence(error.message, '/servers lists the servers.')}\n"
    if not lines:
        return f"{server} has written nothing to standard error in this session.\n"
    shown = "\n".join(lines[-_MAX_LOG_LINES:])
    more = f"All {len(lines)} lines: {logs_command(server)}\n" if len(lines) > _MAX_LOG_LINES else ""
    return f"{shown}\n{more}"
