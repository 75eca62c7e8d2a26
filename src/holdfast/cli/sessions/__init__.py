"""`holdfast sessions`: what was said and done, kept and found again."""

import click

from holdfast.cli.lazy import Lazy, LazyGroup

_HERE = "holdfast.cli.sessions"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": Lazy(target=f"{_HERE}.listing:list_sessions", help="List the sessions, the latest first."),
        "show": Lazy(target=f"{_HERE}.one:show", help="Say all there is to know about one session."),
        "replay": Lazy(
            target=f"{_HERE}.one:replay", help="Print a session's conversation; nothing is called."
        ),
        "search": Lazy(
            target=f"{_HERE}.listing:search", help="Find messages and titles that have all the words."
        ),
        "move": Lazy(target=f"{_HERE}.change:move", help="Say that a session's folder is elsewhere now."),
        "delete": Lazy(
            target=f"{_HERE}.change:delete", help="Forget sessions; the audit of what they did stays."
        ),
        "export": Lazy(target=f"{_HERE}.one:export", help="Write a session's events as JSON lines."),
    },
)
def sessions() -> None:
    """List, show, search, move and delete sessions.

    A session is named by its id, or by the beginning of it.

    \b
    Examples:
      holdfast sessions list --here       what was done in this folder
      holdfast sessions replay 3f2a       the conversation again, without calling anything
      holdfast sessions search login bug  where that was talked about
      holdfast chat --resume 3f2a         go on with it
    """
