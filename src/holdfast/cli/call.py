"""`holdfast call`: call one tool of one server."""

import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click
import msgspec

from holdfast.agent.describe_arguments import describe_json_error, example_object
from holdfast.agent.slash_commands import format_details, read_envelope
from holdfast.builtin.servers import AGENT_SERVERS, TASKS_SERVER
from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_error, print_indented_json, print_json, print_line, print_output
from holdfast.cli.servers.unknown_server import describe_broken_files, server_names
from holdfast.cli.terminal_text import shorten
from holdfast.cli.tool_name import server_of
from holdfast.connect.call import ToolResult
from holdfast.connect.log_files import logs_command
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.server import Stdio
from holdfast.model.tool_pattern import name_in_patterns
from holdfast.resolve.screen_tools import approve_command
from holdfast.wire.strict_json import StrictJsonError, decode_strict

_MAX_TYPE_CELLS = 80


@click.command()
@click.argument("tool", metavar="SERVER.TOOL")
@click.argument("arguments", metavar="[JSON]", default="{}")
@session_options
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help="Seconds to wait for the result. Default: the setting links.call_seconds.",
)
@click.option("--keep", is_flag=True, help="Store the session, so that `holdfast sessions` shows it.")
@json_option
def call(
    tool: str, arguments: str, options: SessionOptions, timeout: float | None, *, keep: bool, as_json: bool
) -> None:
    """Call one tool of one server.

    The call has a session of its own, which is stored only with --keep. The call is always in the audit.

    JSON is an object with the arguments; `-` reads it from standard input.

    You are not asked for permission: by running this command, you allow the call. The rules in the settings still apply. A
    `deny` rule refuses the call, and so does an `ask` rule, because this command cannot ask you. If permission.max_mode.cli is not `auto`,
    a tool that may change something is refused unless an `allow` rule names it. To be asked, use holdfast chat.

    Exit codes: 0 the tool succeeded; 1 it failed or was refused; 2 invalid usage, or arguments that are invalid for the
    tool: nothing was called.

    \b
    Examples:
      holdfast call files.list
      holdfast call files.read '{"path": "README.md"}'
    """
    parsed = _parse_arguments(sys.stdin.read() if arguments == "-" else arguments)
    if "." not in tool:
        meant = name_in_patterns(tool)  # files.read, if the tool is named as models see it: files__read
        hint = f"Write {meant}." if meant else "`holdfast tools` lists the tools."
        hint = options.add_to_commands(hint)
        raise click.UsageError(f"{tool!r} does not have the form SERVER.TOOL. {hint}")

    server, has_log = server_of(tool, ()), True  # a remote server has no log on this machine

    async def work(host: Host) -> ToolResult:
        nonlocal server, has_log
        if tool.count(".") > 1:  # which dot ends the server's name depends on the names of the servers
            server = server_of(tool, server_names(*await host.plan(options.to_open_options())))
        async with open_session(host, options.to_open_options(only_server=server, keep=keep)) as session:
            result = await session.call(tool, parsed, timeout=timeout)
            if not result.ok and result.code != codes.UNKNOWN_TOOL.name:
                with suppress(HoldfastError):
                    has_log = isinstance(session.server(server).transport, Stdio)
        if result.code == codes.UNKNOWN_TOOL.name and not as_json:
            raise await _unknown_tool(host, options, server, result)
        return result

    result = run_with_host(work)
    if as_json:
        print_json(_to_json(result))
    else:
        _print_result(tool, server, result, options, has_log=has_log)
    if result.ok:
        sys.exit(0)
    is_bad_usage = result.outcome is Outcome.REFUSED and result.code == codes.BAD_ARGUMENT.name
    sys.exit(2 if is_bad_usage else 1)


async def _unknown_tool(
    host: Host, options: SessionOptions, server: str, result: ToolResult
) -> HoldfastError:
    """The error for a tool that does not exist. If the server does not exist either, the error suggests a similar name."""
    from difflib import get_close_matches

    # Include the built-in servers that a session gets only on request.
    _, resolution = await host.plan(replace(options.to_open_options(), extra_builtins=AGENT_SERVERS))
    names = [spec.name for spec in resolution.servers]
    if server in names:
        command = shlex.join(["holdfast", "tools", server])
        return HoldfastError(
            codes.UNKNOWN_TOOL,
            f"{result.code}: {result.message}",
            hint=f"To list the server's tools: {command}",
        )
    if server in (*AGENT_SERVERS, TASKS_SERVER):
        # The message already says why this built-in server is missing.
        message = f"{result.code}: {result.message}"
        return HoldfastError(codes.UNKNOWN_TOOL, message, hint="`holdfast tools` lists all tools.")
    close = get_close_matches(server, names, n=1)
    suggestion = f" Did you mean {close[0]!r}?" if close else ""
    broken = describe_broken_files(resolution).values()
    return HoldfastError(
        codes.UNKNOWN_TOOL,
        " ".join((f"{result.code}: There is no server {server[:80]!r} here.{suggestion}", *broken)),
        hint="`holdfast tools` lists all tools.",
    )


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        return decode_strict(text.encode(), dict[str, Any], DEFAULT_LIMITS)
    except StrictJsonError as error:
        raise click.UsageError(
            f"The arguments are not a JSON object{describe_json_error(text, error)}. "
            f"Write them like this: {shlex.quote(example_object(text))}"
        ) from None


def _hint(tool: str, server: str, code: Code, *, has_log: bool) -> str:
    """What the user can do about a failure with this code."""
    if code is codes.BAD_ARGUMENT:
        return f"To see the tool's arguments: {shlex.join(['holdfast', 'tools', tool])}"
    if code is codes.NOT_APPROVED:
        return f"To review and approve it: {approve_command(server)}"
    if code is codes.NOT_PERMITTED:
        return "`holdfast settings show` prints the permission rules. To be asked about a call: holdfast chat"
    if code is codes.SERVER_REFUSED:
        return "`holdfast servers list` shows all servers."
    logs = logs_command(server) if has_log else ""
    if code is codes.INTERNAL_ERROR:
        where = f"Its log has the details: {logs}" if has_log else "It has no log on this machine."
        return f"This is a bug in the server. {where}"
    if code is codes.TOOL_FAILED and has_log:
        return f"The server's log may say more: {logs}"
    return code.hint


def _to_json(result: ToolResult) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "code": result.code,
        "message": result.message,
        "content": result.content,
        "structured": result.data,
        "state_lost": result.state_lost,
    }


def _size_of(block: JsonObject) -> int:
    """The number of bytes in a block's base64 data. For a block without data, the length of its JSON."""
    data = block.get("data")
    if isinstance(data, str):
        return len(data.rstrip("=")) * 3 // 4
    return len(msgspec.json.encode(block))


def _print_result(
    tool: str, server: str, result: ToolResult, options: SessionOptions, *, has_log: bool
) -> None:
    if (failure := read_envelope(result)) is not None:
        code, hint = codes.find(result.code), str(failure["hint"])
        if code is not None and hint == code.hint:  # this hint is for a model, not for a user
            hint = options.add_to_commands(_hint(tool, server, code, has_log=has_log))
        details = "".join(format_details(failure))
        print_output(f"Error: {failure['code']}: {failure['error']}{details}\nHint: {hint}", err=True)
        return
    if not result.ok and (code := codes.find(result.code)) is not None:  # Holdfast failed or refused the call
        message = f"{code.name}: {result.message}"
        error = HoldfastError(code, message, hint=_hint(tool, server, code, has_log=has_log))
        print_error(options.add_to_error(error))
        return
    for block in result.content:
        match block.get("type"):
            case "text":
                print_output(str(block.get("text")), err=not result.ok)
            case kind:
                size = _size_of(block)
                media = block.get("mimeType", "unknown type")
                print_line(
                    f"({shorten(str(kind), _MAX_TYPE_CELLS)}, {shorten(str(media), _MAX_TYPE_CELLS)}, {size} bytes; --json prints it)"
                )
    if not result.content and result.data is not None:
        print_indented_json(result.data)
