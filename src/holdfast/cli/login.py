"""`holdfast servers login NAME`: let a remote server know who you are."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.model.server import ServerSpec
    from holdfast.settings import Settings


@click.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the address of the login page.")
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="How long to wait for the browser to come back.",
)
def login(*, name: str, no_browser: bool, seconds: float) -> None:
    """Log in to the remote server NAME, as it is configured here.

    Your browser opens the server's login page; when you have said yes there, the login is kept for all of
    your sessions, readable by you alone, and refreshed by itself.
    """
    import asyncio

    from holdfast import settings as settings_module
    from holdfast.connect.login import log_in
    from holdfast.connect.logins import LOGINS

    settings = settings_module.load()

    def show(url: str) -> None:
        click.echo(f"Log in here:\n  {url}", err=True)
        if not no_browser:
            click.launch(url)

    outcome = asyncio.run(
        log_in(
            _spec(name, settings),
            folder=settings.data_dir / LOGINS,
            show=show,
            reachable=settings.servers.reachable,
            seconds=seconds,
        )
    )
    if outcome.asked:
        click.echo(f"You are logged in to {name}.")
    else:
        click.echo(f"{name} let us in without a login.")


def _spec(name: str, settings: "Settings") -> "ServerSpec":
    """The server of this name, whether or not a session could use it yet."""
    import os

    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.resolve.load import load
    from holdfast.resolve.sources import read_documents
    from holdfast.resolve.validate import validate

    documents = read_documents(settings.servers.host_file, settings.servers.user_file, Path.cwd())
    resolution = validate(load(documents), environ=os.environ)
    for spec in resolution.servers:
        if spec.name == name:
            return spec
    for refusal in resolution.refusals:
        if refusal.server == name:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"{name!r} cannot be used: {refusal.reason}")
    raise HoldfastError(codes.UNKNOWN_SERVER, f"There is no server {name[:80]!r} in the lists read here.")
