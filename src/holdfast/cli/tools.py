"""`holdfast tools`: list the tools of a session in this folder."""

import json

import click

from holdfast.cli.open_session import SessionOptions, open_session, run_with_host, session_options
from holdfast.cli.options import json_option
from holdfast.cli.output import NO_SERVERS, print_json, print_line, print_lines, print_table
from holdfast.cli.text import quote_lines, replace_unprintable
from holdfast.connect.catalog import CatalogTool
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Access, Mode
from holdfast.model.resolution import Refusal
from holdfast.session.permission_rules import PermissionRules, decide

BY_MODE = "by the mode"


@click.command()
@click.argument("server", required=False)
@session_options
@json_option
def tools(server: str | None, options: SessionOptions, *, as_json: bool) -> None:
    """List the tools of a session in this folder.

    Starts the servers, lists their tools, and stops the servers. With SERVER, only that server. The column "permission"
    shows which permission rule decides about a tool. Without a rule, the session's mode decides about a tool that may
    change something.

    \b
    Examples:
      holdfast tools
      holdfast tools files
    """
    open_options = options.to_open_options(only_server=server, keep=False)

    async def work(host: Host) -> tuple[tuple[CatalogTool, ...], tuple[Refusal, ...], PermissionRules]:
        async with open_session(host, open_options) as session:
            return await session.tools(), session.refusals, session.permission.rules

    found, refusals, rules = run_with_host(work)
    if server is not None:
        refusals = tuple(refusal for refusal in refusals if refusal.server == server)
        if not found and not refusals:
            raise HoldfastError(
                codes.UNKNOWN_SERVER,
                f"There is no server {server!r} here.",
            )
    if as_json:
        print_json(_to_json(found, refusals, rules))
        return
    if found:
        rows = [(tool.name, _describe_access(tool, rules), tool.definition.summary) for tool in found]
        print_table(("tool", "permission", "what it does"), rows)
    for refusal in refusals:
        print_lines(f"{replace_unprintable(refusal.server)}: {quote_lines(refusal.reason)}", err=True)
    if not found and not refusals:
        print_line(NO_SERVERS, err=True)


def _describe_access(tool: CatalogTool, rules: PermissionRules) -> str:
    """Which rule decides about the tool; without one, that it only reads or that the mode decides."""
    decision = decide(tool, Mode.ASK, rules)
    return decision.summary if decision.rule is not None or decision.access is Access.ALLOWED else BY_MODE


def _access_to_json(tool: CatalogTool, rules: PermissionRules) -> dict[str, object]:
    """What each mode decides about the tool, and the rule that decides in the mode `ask`."""
    rule = decide(tool, Mode.ASK, rules).rule
    return {
        **{mode.value: decide(tool, mode, rules).access for mode in Mode},
        "rule": None if rule is None else {"pattern": str(rule.pattern), "of": rule.imposed_by},
    }


def _to_json(
    found: tuple[CatalogTool, ...], refusals: tuple[Refusal, ...], rules: PermissionRules
) -> dict[str, object]:
    return {
        "tools": [
            {
                "name": tool.name,
                "model_name": tool.model_name,
                "server": tool.server.name,
                "description": tool.definition.description or "",
                "permission": _access_to_json(tool, rules),
                "input_schema": json.loads(bytes(tool.definition.input_schema)),
            }
            for tool in found
        ],
        "refusals": [
            {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
            for refusal in refusals
        ],
    }
