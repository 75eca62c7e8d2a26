"""`holdfast servers`: list, approve, import and log in to MCP servers."""

import click

from holdfast.cli.groups import LazyCommand, LazyGroup

_HERE = "holdfast.cli.servers"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": LazyCommand(
            target=f"{_HERE}.list:list_servers",
            help="List the servers, and which of them a session here gets.",
        ),
        "explain": LazyCommand(
            target=f"{_HERE}.list:explain", help="Show where one server is configured, and why it is refused."
        ),
        "approve": LazyCommand(
            target=f"{_HERE}.approve:approve",
            help="Review and approve a project's servers and changed tools.",
        ),
        "import": LazyCommand(
            target=f"{_HERE}.import_:import_servers", help="Import the servers of another program."
        ),
        "login": LazyCommand(target="holdfast.cli.servers.login:login", help="Log in to a remote server."),
    },
)
def servers() -> None:
    """List, explain, approve and import MCP servers.

    Servers are configured by the operator, by you, in the project's .mcp.json and by the client that
    opens a session. A project's servers run only after you approved them.

    \b
    Examples:
      holdfast servers list                         the servers of this folder
      holdfast servers explain github               why this one is refused
      holdfast servers import --from claude-desktop
    """
