"""Prints the beginning of a chat: the session and its servers."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.agent.model.model_agent import ModelAgent
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.terminal_text import replace_unprintable
from holdfast.model.permission import Mode
from holdfast.model.plural import count
from holdfast.model.resolution import Stage
from holdfast.resolve.screen_tools import approve_command, describe_hints_awaiting_approval
from holdfast.session.session import Session

_SHOWN_ID_LENGTH = 17  # the prefix `sess_` and twelve hexadecimal digits
_MODE_WARNINGS = {
    Mode.AUTO: "auto: tools change things without asking",
    Mode.READ_ONLY: "read-only: tools that may change something are refused",
}


def print_banner(
    printer: EventPrinter,
    session: Session,
    *,
    mode: Mode = Mode.ASK,
    title: str = "",
    stored_roots: Sequence[str] = (),
    whole_reasons: bool = False,
) -> None:
    """Print the session's folders, trust, mode and servers. With `whole_reasons`, print all lines about each refused server.

    For a resumed session, also print its `title`, and the folders in `stored_roots` that the user has not granted again.
    """
    context = session.context
    printer.print(f"Holdfast {__version__}", "bold cyan", end="")
    printer.print("  sessions for MCP", "dim")
    _row(printer, "folder" if len(context.roots) == 1 else "folders", _abbreviate_home(context.cwd))
    for root in context.roots[1:]:
        _row(printer, "", _abbreviate_home(root))
    workspace = f", workspace {context.workspace_id}" if context.workspace_id else ""
    _row(printer, "session", f"{context.session_id[:_SHOWN_ID_LENGTH]}…, {context.trust_level}{workspace}")
    for warning in session.warnings:
        if warning.folder:
            _row(printer, "trust", replace_unprintable(f"{warning.folder}: {warning.text}"), "yellow")
    if mode in _MODE_WARNINGS:
        _row(printer, "mode", _MODE_WARNINGS[mode], "yellow")
    if session.definition is not None:
        _row(printer, "agent", session.definition.name)
    if isinstance(session.agent, ModelAgent) and session.agent.chosen_model:
        _row(printer, "model", replace_unprintable(session.agent.chosen_model))
    counts = Counter(tool.server.name for tool in session.available_tools)
    servers = [f"{replace_unprintable(name)} ({count(counts[name], 'tool')})" for name in session.available]
    _row(printer, "servers", ", ".join(servers) or "none")
    if session.starting:
        _row(printer, "starting", ", ".join(map(replace_unprintable, session.starting)))
    for refusal in session.refusals:
        name = replace_unprintable(refusal.server)
        first, *rest = map(replace_unprintable, refusal.reason.split("\n"))
        _row(printer, "refused", f"{name}: {first}", "yellow")
        for line in rest if whole_reasons else rest[-1:]:
            _row(printer, "", line, "yellow")
        if len(rest) > 1 and not whole_reasons:
            _row(printer, "", f"/why {name} shows all that the server wrote", "yellow")
    _print_unapproved(printer, session)
    printer.print()
    if title:
        printer.print(f"Resuming {title!r}.", "dim")
    if missing := [root for root in stored_roots if root not in context.roots]:
        arguments = shlex.join(part for root in missing for part in ("--also", root))
        printer.print(
            f"The session also used {', '.join(map(replace_unprintable, missing))}. To allow these folders again, resume it with {replace_unprintable(arguments)}",
            "yellow",
        )


def _print_unapproved(printer: EventPrinter, session: Session) -> None:
    """Print what awaits approval: servers, tools and hints about tools."""
    if printer.is_terminal and any(refusal.stage is Stage.ADMIT for refusal in session.refusals):
        _row(printer, "", "type /approve to review the project's servers in this chat", "yellow")
    for name, withheld in session.awaiting_approval.items():
        _row(
            printer,
            "approve",
            f"{count(len(withheld), 'tool')} of {replace_unprintable(name)}: run `{replace_unprintable(approve_command(name))}`",
            "yellow",
        )
    for name in session.offered_without_hints:
        _row(printer, "approve", replace_unprintable(describe_hints_awaiting_approval(name)), "yellow")


def _row(printer: EventPrinter, name: str, text: str, style: str = "") -> None:
    printer.print(f"  {name:<9}", "dim", end="")
    printer.print(text, style)


def _abbreviate_home(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path == home or path.startswith(f"{home}/") else path
