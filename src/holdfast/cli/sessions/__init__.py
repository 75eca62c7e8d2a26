"""`holdfast sessions`: list, search, replay and change stored sessions."""

import click

from holdfast.cli.groups import LazyCommand, LazyGroup

_HERE = "holdfast.cli.sessions"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": LazyCommand(
            target=f"{_HERE}.list:list_sessions", help="List the sessions, the latest first."
        ),
        "show": LazyCommand(target=f"{_HERE}.show:show", help="Show the details of one session."),
        "replay": LazyCommand(
            target=f"{_HERE}.show:replay", help="Print the conversation of a session; calls no tools."
        ),
        "search": LazyCommand(
            target=f"{_HERE}.list:search", help="Find messages and titles that contain all the words."
        ),
        "move": LazyCommand(
            target=f"{_HERE}.change:move", help="Set the folder of a session whose project was moved."
        ),
        "delete": LazyCommand(
            target=f"{_HERE}.change:delete", help="Delete sessions; their audit records are kept."
        ),
        "export": LazyCommand(target=f"{_HERE}.show:export", help="Write a session's events as JSON lines."),
    },
)
def sessions() -> None:
    """List, show, search, move and delete sessions.

    Name a session by its id or the beginning of it.

    \b
    Examples:
      holdfast sessions list --here       the sessions of this folder
      holdfast sessions replay 3f2a       print the conversation
      holdfast sessions search login bug  find messages with these words
      holdfast chat --resume 3f2a         continue the session
    """
