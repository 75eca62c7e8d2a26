"""`holdfast servers`: which servers there are, which a session gets, and on whose word."""

import click

from holdfast.cli.lazy import Lazy, LazyGroup

_HERE = "holdfast.cli.servers"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": Lazy(
            target=f"{_HERE}.listing:list_servers", help="List the servers, and which a session here gets."
        ),
        "explain": Lazy(target=f"{_HERE}.listing:explain", help="Say all there is to know about one server."),
        "approve": Lazy(
            target=f"{_HERE}.approve:approve", help="Look at what waits for approval, and decide."
        ),
        "import": Lazy(
            target=f"{_HERE}.importing:import_servers", help="Take over another program's servers."
        ),
        "login": Lazy(target="holdfast.cli.login:login", help="Log in to a remote server."),
    },
)
def servers() -> None:
    """List, explain, approve and import MCP servers.

    Servers come from the operator's list, your own, the project's .mcp.json and the client's request.
    What a project brings runs only after you approved it as it stands.

    \b
    Examples:
      holdfast servers list                         who stands and who fell, in this folder
      holdfast servers explain github               one server, and why it is refused
      holdfast servers import --from claude-desktop
    """
