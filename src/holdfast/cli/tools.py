"""`holdfast tools`: list the tools of a session in this folder."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import click

from holdfast.agent.describe_arguments import describe_arguments, example_arguments
from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.options import json_lines_option
from holdfast.cli.output import (
    AGENT_SERVERS_NOTE,
    NO_SERVERS,
    print_json,
    print_line,
    print_lines,
    print_table,
)
from holdfast.cli.servers.unknown_server import server_names, unknown_server
from holdfast.cli.terminal_text import quote_lines, replace_unprintable
from holdfast.cli.tool_name import server_of
from holdfast.connect.catalog import CatalogTool
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Access, Mode
from holdfast.model.resolution import Refusal
from holdfast.model.tool_pattern import name_in_patterns
from holdfast.resolve.screen_tools import WithheldTool, approve_command, describe_hints_awaiting_approval
from holdfast.session.permission_rules import PermissionRules, decide

DECIDED_BY_MODE = "by the mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionTools:
    tools: tuple[CatalogTool, ...]
    withheld: Sequence[tuple[str, WithheldTool]]
    """The tools that await approval, each after the name of its server."""
    without_hints: Sequence[str]
    """The servers whose hints about their tools await approval."""
    refusals: tuple[Refusal, ...]
    rules: PermissionRules


@click.command()
@click.argument("server", required=False)
@session_options
@json_lines_option
def tools(server: str | None, options: SessionOptions, *, as_json: bool) -> None:
    """List the tools of a session in this folder.

    Starts the servers, lists their tools, and stops the servers. With SERVER, only that server; with SERVER.TOOL, describes
    that tool and its arguments. The column "permission" shows which permission rule decides about a tool. Without a rule, the
    session's mode decides about a tool that may change something. Tools that await your approval are also listed.

    Exit codes: 0 the tools were listed; 1 the server or tool does not exist, or the server was refused or did not start; 2 invalid
    usage.

    \b
    Examples:
      holdfast tools
      holdfast tools files
      holdfast tools files.read
    """
    tool = ""

    async def work(host: Host) -> _SessionTools:
        nonlocal server, tool
        # A name such as files__read, as models see it, becomes files.read.
        name = "" if server is None else name_in_patterns(server) or server
        if "." in name:
            known = server_names(*await host.plan(options.to_open_options()))
            prefix = server_of(name, known)
            if server not in known and prefix in known:
                server, tool = prefix, name
        listed = await _list(host, options, server)
        if tool:
            return _select_tool(listed, tool, server)
        if server is not None and not listed.tools and not listed.withheld:
            loaded, resolution = await host.plan(options.to_open_options())
            if server not in server_names(loaded, resolution):
                raise unknown_server(server, loaded, resolution)
        return listed

    listed = run_with_host(work)
    found, withheld, refusals = listed.tools, listed.withheld, listed.refusals
    if server is not None:
        refusals = tuple(refusal for refusal in refusals if refusal.server == server)
    if as_json:
        for line in _to_json(replace(listed, refusals=refusals)):
            print_json(line)
    elif tool and found:
        _print_tool(found[0], listed.rules, options)
        for name in listed.without_hints:
            print_line(options.add_to_commands(describe_hints_awaiting_approval(name)), err=True)
    else:
        _print(replace(listed, refusals=refusals), server, options)
    if server is not None and refusals and not found and not withheld:
        raise click.exceptions.Exit(1)


async def _list(host: Host, options: SessionOptions, server: str | None) -> _SessionTools:
    async with open_session(host, options.to_open_options(only_server=server, keep=False)) as session:
        return _SessionTools(
            tools=await session.tools(),
            withheld=[(name, tool) for name, tools in session.awaiting_approval.items() for tool in tools],
            without_hints=[*session.offered_without_hints],
            refusals=session.refusals,
            rules=session.permission.rules,
        )


def _select_tool(listed: _SessionTools, name: str, server: str | None) -> _SessionTools:
    """Leave out all tools but the one with this name. Raise UNKNOWN_TOOL if the server has started and does not have it."""
    tools = tuple(tool for tool in listed.tools if name == tool.name)
    withheld = [(owner, tool) for owner, tool in listed.withheld if name == f"{owner}.{tool.name}"]
    if not tools and not withheld and (listed.tools or listed.withheld):
        close = get_close_matches(name[:120], [tool.name for tool in listed.tools], n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        raise HoldfastError(
            codes.UNKNOWN_TOOL,
            f"There is no tool {name[:120]!r}.{suggestion}",
            hint=f"To list the server's tools: {shlex.join(['holdfast', 'tools', server or ''])}",
        )
    return replace(listed, tools=tools, withheld=withheld)


def _print_tool(tool: CatalogTool, rules: PermissionRules, options: SessionOptions) -> None:
    definition = tool.definition
    parts = (
        f"{tool.name}: {definition.title}" if definition.title else tool.name,
        (definition.description or "").strip(),
        describe_arguments(definition).strip(),
        f"Permission: {_describe_access(tool, rules)}",
        shlex.join(["holdfast", "call", *options.to_arguments(), tool.name, example_arguments(definition)]),
    )
    print_lines("\n\n".join(part for part in parts if part))


def _print(listed: _SessionTools, server: str | None, options: SessionOptions) -> None:
    found, withheld, refusals, rules = listed.tools, listed.withheld, listed.refusals, listed.rules
    if found or withheld:
        rows = [(tool.name, _describe_access(tool, rules), tool.definition.summary) for tool in found]
        rows += [(f"{name}.{tool.name}", "awaits approval", tool.reason) for name, tool in withheld]
        print_table(("tool", "permission", "what it does"), rows)
    for name in dict.fromkeys(name for name, _ in withheld):
        command = options.add_to_commands(approve_command(name))
        print_line(f"To review and approve the tools of {name}: {command}", err=True)
    for name in listed.without_hints:
        print_line(options.add_to_commands(describe_hints_awaiting_approval(name)), err=True)
    for refusal in refusals:
        reason = options.add_to_commands(refusal.reason)
        print_lines(f"{replace_unprintable(refusal.server)}: {quote_lines(reason)}", err=True)
    if not found and not refusals and not withheld:
        print_line(NO_SERVERS if server is None else f"{server} has no tools.", err=True)
    if server is None:
        print_line(options.add_to_commands(AGENT_SERVERS_NOTE), err=True)


def _describe_access(tool: CatalogTool, rules: PermissionRules) -> str:
    """The rule that decides about the tool. Without a rule: that the tool only reads, that no mode allows it, or that the mode decides."""
    decision = decide(tool, Mode.ASK, rules)
    # In the mode `ask`, the mode refuses a tool only if the limit of a workspace or a token is lower.
    is_mode_decisive = decision.rule is None and decision.access is Access.MUST_ASK
    return DECIDED_BY_MODE if is_mode_decisive else decision.summary


def _access_to_json(tool: CatalogTool, rules: PermissionRules) -> dict[str, object]:
    """The decision of each mode about the tool, and the rule that decides in the mode `ask`."""
    rule = decide(tool, Mode.ASK, rules).rule
    return {
        **{mode.value: decide(tool, mode, rules).access for mode in Mode},
        "rule": None if rule is None else {"pattern": str(rule.pattern), "of": rule.imposed_by},
    }


def _to_json(listed: _SessionTools) -> Iterator[dict[str, object]]:
    """An object for each tool and for each refused server. `state` says which it is."""
    for tool in listed.tools:
        yield {
            "state": "offered",
            "name": tool.name,
            "model_name": tool.model_name,
            "server": tool.server.name,
            "description": tool.definition.description or "",
            "permission": _access_to_json(tool, listed.rules),
            "input_schema": json.loads(bytes(tool.definition.input_schema)),
        }
    for server, tool in listed.withheld:
        yield {
            "state": "awaiting approval",
            "name": f"{server}.{tool.name}",
            "server": server,
            "reason": tool.reason,
            "approve": approve_command(server),
        }
    for refusal in listed.refusals:
        yield {
            "state": "refused",
            "server": refusal.server,
            "stage": refusal.stage,
            "reason": refusal.reason,
        }
