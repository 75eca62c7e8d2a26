"""`holdfast servers login`: log in to a remote server."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.model.server import ServerSpec
    from holdfast.settings import Settings


@click.command()
@click.argument("name")
@click.option(
    "--no-browser", is_flag=True, help="Print the address of the login page, and do not open a browser."
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="How long to wait for the login in the browser.",
)
def login(*, name: str, no_browser: bool, seconds: float) -> None:
    """Log in to a remote server.

    Opens the server's login page in your browser. The login is stored in a file that only you can read,
    used by all your sessions, and renewed automatically.

    \b
    Example:
      holdfast servers login github
    """
    import asyncio

    from holdfast import settings as settings_module
    from holdfast.connect.http.login import log_in
    from holdfast.connect.http.login_store import LOGIN_FOLDER

    settings = settings_module.load()

    def show(url: str) -> None:
        click.echo(f"Log in here:\n  {url}", err=True)
        if not no_browser:
            click.launch(url)

    result = asyncio.run(
        log_in(
            _find_spec(name, settings),
            folder=settings.data_dir / LOGIN_FOLDER,
            on_login_page=show,
            reachable=settings.servers.reachable,
            seconds=seconds,
        )
    )
    if result.was_required:
        click.echo(f"Logged in to {name}.")
    else:
        click.echo(f"{name} does not require a login.")


def _find_spec(name: str, settings: "Settings") -> "ServerSpec":
    """The server with this name, even if it is not approved yet."""
    import os

    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.resolve.load import load, read_config_files
    from holdfast.resolve.validate import validate

    documents = read_config_files(settings.servers.host_file, settings.servers.user_file, Path.cwd())
    resolution = validate(load(documents), environ=os.environ)
    for spec in resolution.servers:
        if spec.name == name:
            return spec
    for refusal in resolution.refusals:
        if refusal.server == name:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"{name!r} cannot be used: {refusal.reason}")
    raise HoldfastError(
        codes.UNKNOWN_SERVER,
        f"There is no server {name[:80]!r} here.",
    )
