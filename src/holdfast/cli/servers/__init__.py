"""`holdfast servers`: the table of its subcommands."""

import click

from holdfast.cli.click_groups import LazyCommand, LazyGroup

_HERE = "holdfast.cli.servers"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": LazyCommand(
            target=f"{_HERE}.list:list_servers",
            help="List the servers that a session here gets, and those that are refused.",
        ),
        "explain": LazyCommand(
            target=f"{_HERE}.list:explain",
            help="Show where a server is configured, and whether and why it is refused.",
        ),
        "add": LazyCommand(target=f"{_HERE}.change:add", help="Add a server to your list."),
        "remove": LazyCommand(target=f"{_HERE}.change:remove", help="Remove a server from your list."),
        "edit": LazyCommand(target=f"{_HERE}.change:edit", help="Open your list of servers in an editor."),
        "logs": LazyCommand(target=f"{_HERE}.logs:logs", help="Show what a server wrote to standard error."),
        "approve": LazyCommand(
            target=f"{_HERE}.approve:approve",
            help="Review and approve a project's servers, and new or changed tools.",
        ),
        "approvals": LazyCommand(
            target=f"{_HERE}.approvals:list_approvals",
            help="List the servers, tools, agents and instructions (AGENTS.md) that you have approved.",
        ),
        "revoke": LazyCommand(
            target=f"{_HERE}.approvals:revoke", help="Revoke the approval of a project's server."
        ),
        "import": LazyCommand(
            target=f"{_HERE}.import_servers:import_servers", help="Import the servers of another MCP client."
        ),
        "login": LazyCommand(target=f"{_HERE}.login:login", help="Log in to a remote server."),
        "logout": LazyCommand(
            target=f"{_HERE}.login:logout", help="Remove the saved login to a remote server."
        ),
    },
)
def servers() -> None:
    """Manage MCP servers: list, explain, add, remove, edit, logs, approve, approvals, revoke, import, login, logout.

    Servers can be configured by the operator of this machine, by you, by the project (in .mcp.json), and by
    the client that opens a session. A project's servers run only after you approve them.

    \b
    Examples:
      holdfast servers list                         list the servers of this folder
      holdfast servers explain github               show why a server is refused
      holdfast servers add notes -- python /home/me/notes.py
                                                  add a server of your own
      holdfast servers import --from claude-desktop
    """
