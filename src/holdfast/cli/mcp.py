"""`holdfast mcp`: serve one MCP client that starts this process."""

from pathlib import Path
from typing import Any

import click

from holdfast.cli.options import trust_option, workspace_option


@click.command()
@click.option(
    "--cwd",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder of the session. Default: the workspace's folder, or the folder in which the client starts this command.",
)
@trust_option
@workspace_option
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    help="When a tool may change something: ask the client's user (default), allow it, or refuse it.",
)
@click.option("--servers", metavar="NAMES", help="Only these servers, separated by commas. Default: all.")
@click.option(
    "--tools",
    metavar="PATTERNS",
    help="Only tools that match, such as git.log,files.*; separated by commas. Default: all.",
)
def mcp(**given: Any) -> None:
    """Serve one MCP client, on standard input and output.

    Configure this as the `command` of an MCP server in any client. The client gets the tools of all your servers, in one
    session that is recorded and audited like every other session. No token is needed: the client starts this process with your rights.
    Logs go to standard error.

    \b
    Example:
      holdfast mcp --trust sandboxed

    In a client's .mcp.json: {"mcpServers": {"holdfast": {"command": "holdfast", "args": ["mcp"]}}}
    """
    import asyncio
    import os

    from holdfast import log_output, settings
    from holdfast.cli.exit_deadline import ExitDeadline
    from holdfast.host.data_folder import check_data_folder
    from holdfast.model import codes
    from holdfast.model.context import context_from_env
    from holdfast.model.descriptor_limit import raise_descriptor_limit
    from holdfast.model.errors import HoldfastError
    from holdfast.store.suspension import suspend_between_transactions

    if context_from_env(os.environ) is not None:
        raise HoldfastError(
            codes.INVALID_REQUEST,
            "A session of Holdfast started `holdfast mcp` as one of its servers. That would open sessions without end.",
            hint="Remove the entry from .mcp.json or from your list of servers.",
        )
    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    check_data_folder(loaded.data_dir)
    raise_descriptor_limit()
    suspend_between_transactions()
    with ExitDeadline() as deadline:
        asyncio.run(_serve(loaded, given, deadline.start))


async def _serve(loaded: Any, given: dict[str, Any], on_end: Any) -> None:
    import asyncio
    import signal

    from holdfast.gateway.open_gateway import gateway_options
    from holdfast.gateway.options import GatewayOptions
    from holdfast.gateway.stdio import serve_stdio
    from holdfast.host.host import Host

    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: task.cancel() if task is not None else None)
    try:
        async with Host(settings=loaded) as host:
            folder = (given["cwd"] or Path()).absolute()
            options = gateway_options(loaded, GatewayOptions(cwd=folder))
            try:
                await serve_stdio(host, _credential(given), options)
            finally:
                on_end()
    except asyncio.CancelledError:
        pass  # a signal: the host has closed its sessions


def _credential(given: dict[str, Any]) -> Any:
    from holdfast.cli.tokens import parse_names, parse_patterns
    from holdfast.gateway.credential import Credential
    from holdfast.model.permission import Mode
    from holdfast.model.trust import parse_trust

    return Credential(
        id="stdio",
        how_to_stop_asking="add --mode auto to the command `holdfast mcp` in the configuration of the client",
        name="this process",
        cwd=str(given["cwd"].absolute()) if given["cwd"] is not None else "",
        workspace=given["workspace"],
        trust=None if given["trust"] is None else parse_trust(given["trust"]),
        mode=None if given["mode"] is None else Mode(given["mode"]),
        servers=parse_names(given["servers"]),
        tools=parse_patterns(given["tools"]),
    )
