"""Print the start of a chat: the session, its servers, and what to type."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.text import replace_unprintable
from holdfast.session.permission import Mode
from holdfast.session.session import Session

_MODES = {
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
) -> None:
    """Print the session's folders, trust, mode and servers. If it was resumed, also its `title` and lost folders."""
    context = session.context
    printer.print(f"Holdfast {__version__}", "bold cyan", end="")
    printer.print("  sessions for MCP", "dim")
    _row(printer, "folder", _abbreviate_home(context.cwd))
    for root in context.roots[1:]:
        _row(printer, "also", _abbreviate_home(root))
    workspace = f", workspace {context.workspace_id}" if context.workspace_id else ""
    _row(printer, "session", f"{context.session_id[:17]}…, {context.trust_level}{workspace}")
    for warning in session.warnings:
        if warning.server in context.roots:  # about the session's trust
            _row(printer, "trust", replace_unprintable(f"{warning.server}: {warning.text}"), "yellow")
    if mode in _MODES:
        _row(printer, "mode", _MODES[mode], "yellow")
    counts = Counter(tool.server.name for tool in session.available_tools)
    servers = [f"{replace_unprintable(name)} ({counts[name]} tools)" for name in session.available]
    _row(printer, "servers", ", ".join(servers) or "none")
    if session.starting:
        _row(printer, "starting", ", ".join(map(replace_unprintable, session.starting)))
    for refusal in session.refusals:
        _row(
            printer,
            "refused",
            f"{replace_unprintable(refusal.server)}: {refusal.reason}".partition("\n")[0],
            "yellow",
        )
    for name, unapproved in session.awaiting_approval.items():
        if unapproved:
            _row(
                printer,
                "approve",
                f"{len(unapproved)} tools of {replace_unprintable(name)}: run `holdfast servers approve`",
                "yellow",
            )
    printer.print()
    if title:
        printer.print(f"Resuming {title!r}.", "dim")
    if missing := [root for root in stored_roots if root not in context.roots]:
        again = shlex.join(part for root in missing for part in ("--also", root))
        printer.print(
            f"The session also used {', '.join(map(replace_unprintable, missing))}. To allow that again, add {replace_unprintable(again)}",
            "yellow",
        )


def print_usage(printer: EventPrinter) -> None:
    """Print the most useful commands and keys."""
    printer.print("This session has no model: you call the tools yourself. Type")
    for typed, meaning in (
        ("/tools", "list the tools"),
        ('/call files.list {"path": "."}', "call a tool"),
        ('/call files.find {"text": "TODO"}', "find lines in files"),
        ("/servers", "show the servers"),
        ("/help", "show all commands"),
        ("/quit", "leave; you can resume the session later"),
    ):
        printer.print(f"  {typed:<36}", "cyan", end="")
        printer.print(meaning, "dim")
    if printer.is_terminal:
        printer.print("Tab completes, Alt-Enter starts a new line, Ctrl-C cancels, Ctrl-D leaves.", "dim")
    printer.print()


def _row(printer: EventPrinter, name: str, text: str, style: str = "") -> None:
    printer.print(f"  {name:<9}", "dim", end="")
    printer.print(text, style)


def _abbreviate_home(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path == home or path.startswith(f"{home}/") else path
