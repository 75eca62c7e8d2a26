"""The first words of a chat: where it is, what it has, what to type."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.cli.screen import Screen
from holdfast.cli.table import plain
from holdfast.session.permission import Mode
from holdfast.session.session import Session

_MODES = {
    Mode.AUTO: "auto: no tool asks before it changes something",
    Mode.READ_ONLY: "read-only: tools that may change something are refused",
}


def greet(
    screen: Screen,
    session: Session,
    *,
    mode: Mode = Mode.ASK,
    resumed: str = "",
    had: Sequence[str] = (),
) -> None:
    """Say hello."""
    context = session.context
    screen.say(f"Holdfast {__version__}", "bold cyan", end="")
    screen.say("  sessions for MCP", "dim")
    _row(screen, "folder", _home(context.cwd))
    for root in context.roots[1:]:
        _row(screen, "also", _home(root))
    workspace = f", workspace {context.workspace_id}" if context.workspace_id else ""
    _row(screen, "session", f"{context.session_id[:17]}…, {context.trust_level}{workspace}")
    if mode in _MODES:
        _row(screen, "mode", _MODES[mode], "yellow")
    counts = Counter(offer.server.name for offer in session.offers)
    up = [f"{plain(name)} ({counts[name]} tools)" for name in session.up]
    _row(screen, "servers", ", ".join(up) or "none")
    if session.starting:
        _row(screen, "starting", ", ".join(map(plain, session.starting)))
    for refusal in session.refusals:
        _row(screen, "not up", f"{plain(refusal.server)}: {refusal.reason}".partition("\n")[0], "yellow")
    for name, held in session.held_back.items():
        if held:
            _row(screen, "waiting", f"{len(held)} tools of {plain(name)}: holdfast servers approve", "yellow")
    screen.say()
    if resumed:
        screen.say(f"Going on with {resumed!r}.", "dim")
    if missing := [root for root in had if root not in context.roots]:
        again = shlex.join(part for root in missing for part in ("--also", root))
        screen.say(
            f"It also had {', '.join(map(plain, missing))}. To have that again: {plain(again)}", "yellow"
        )


def say_what_to_type(screen: Screen) -> None:
    """What works without a model."""
    screen.say("There is no model here yet: you call the tools yourself. Type")
    for typed, meaning in (
        ("/tools", "what can be called"),
        ('/call files.list {"path": "."}', "call a tool"),
        ('/call files.find {"text": "TODO"}', "find lines in files"),
        ("/servers", "how the servers are"),
        ("/help", "all commands"),
        ("/quit", "leave; the session is kept"),
    ):
        screen.say(f"  {typed:<36}", "cyan", end="")
        screen.say(meaning, "dim")
    if screen.is_terminal:
        screen.say("Tab completes, Ctrl-C cancels, Ctrl-D leaves.", "dim")
    screen.say()


def _row(screen: Screen, name: str, text: str, style: str = "") -> None:
    screen.say(f"  {name:<9}", "dim", end="")
    screen.say(text, style)


def _home(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path == home or path.startswith(f"{home}/") else path
