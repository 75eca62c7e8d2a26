"""`holdfast sessions`: the table of its subcommands."""

import click

from holdfast.cli.click_groups import LazyCommand, LazyGroup

_HERE = "holdfast.cli.sessions"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": LazyCommand(target=f"{_HERE}.list:list_sessions", help="List the sessions, latest first."),
        "show": LazyCommand(target=f"{_HERE}.show:show", help="Show the details of one session."),
        "replay": LazyCommand(
            target=f"{_HERE}.show:replay", help="Print a session's conversation, without calling any tools."
        ),
        "search": LazyCommand(
            target=f"{_HERE}.list:search",
            help="Find sessions with a message or a title that contains all the words.",
        ),
        "attach": LazyCommand(
            target=f"{_HERE}.attach:attach", help="Chat in a session that another process has open."
        ),
        "watch": LazyCommand(
            target=f"{_HERE}.attach:watch",
            help="Print what happens in a session that another process has open.",
        ),
        "move": LazyCommand(
            target=f"{_HERE}.change:move", help="Change the folder of a session, after its project was moved."
        ),
        "delete": LazyCommand(
            target=f"{_HERE}.change:delete", help="Delete sessions; their audit records are kept."
        ),
        "prune": LazyCommand(
            target=f"{_HERE}.change:prune", help="Delete sessions that were not used for a long time."
        ),
        "tag": LazyCommand(target=f"{_HERE}.change:tag", help="Add tags to a session, and remove tags."),
        "export": LazyCommand(target=f"{_HERE}.show:export", help="Write a session's events as JSON lines."),
    },
)
def sessions() -> None:
    """List, show, replay, search, attach to, watch, move, delete, prune, tag and export sessions.

    ID is the id of a session, or its first characters: at least four.

    \b
    Examples:
      holdfast sessions list --here       the sessions of this folder
      holdfast sessions replay 3f2a       print the conversation
      holdfast sessions search login bug  find messages with these words
      holdfast chat --resume 3f2a         continue the session
      holdfast sessions attach 3f2a       join a session that another process has open
    """
