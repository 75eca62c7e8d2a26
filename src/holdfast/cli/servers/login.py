"""`holdfast servers login` and `logout`: save and remove logins to remote servers."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_line

if TYPE_CHECKING:
    from holdfast.connect.http.login import LoginResult
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
        print_line(f"The remote server {name!r} asks you to log in here:", err=True)
        print_line(f"  {url}", err=True)
        if not no_browser:
            click.launch(url)

    async def run() -> "LoginResult":
        return await log_in(
            await _find_server(name, settings),
            folder=settings.data_dir / LOGIN_FOLDER,
            on_login_page=show,
            reachable=settings.servers.reachable,
            seconds=seconds,
        )

    result = asyncio.run(run())
    if result.was_required:
        print_line(f"Logged in to {name}.")
    else:
        print_line(f"{name} does not require a login.")


@click.command()
@click.argument("name")
def logout(name: str) -> None:
    """Remove the saved login to a remote server.

    Sessions that are opened from now on are not logged in. Open sessions, and the server itself, may accept the
    login until it expires; to end it at once, revoke it on the server's website.

    \b
    Example:
      holdfast servers logout github
    """
    import asyncio

    from holdfast import settings as settings_module
    from holdfast.connect.http.login_store import LOGIN_FOLDER, login_file, remove_login
    from holdfast.connect.http.url import display_url, parse_url
    from holdfast.model import codes
    from holdfast.model.errors import HoldfastError
    from holdfast.model.server import Http, Sse

    settings = settings_module.load()
    spec = asyncio.run(_find_server(name, settings))
    if not isinstance(spec.transport, Http | Sse):
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name!r} has no login: it is a local program.")
    url = spec.transport.url
    if remove_login(login_file(settings.data_dir / LOGIN_FOLDER, url)):
        print_line(f"Logged out of {name}: removed the saved login to {display_url(parse_url(url))}.")
        print_line("To end the login on the server as well, revoke it on the server's website.")
    else:
        print_line(f"There is no saved login to {name}.")


async def _find_server(name: str, settings: "Settings") -> "ServerSpec":
    """The server with this name, if a direct session in this folder gets it. A project's server must be approved."""
    from holdfast.cli.servers.unknown_server import unknown_server
    from holdfast.host.data_folder import DATABASE_FILE
    from holdfast.model import codes
    from holdfast.model.context import SessionContext
    from holdfast.model.errors import HoldfastError
    from holdfast.model.ids import new_session_id
    from holdfast.model.trust import Trust
    from holdfast.resolve.inputs import ResolveInputs, prepare_resolution
    from holdfast.resolve.resolve import resolve
    from holdfast.store.open_store import open_read_only

    folder = str(Path.cwd().resolve())
    context = SessionContext(
        session_id=new_session_id(), trust_level=Trust.DIRECT, cwd=folder, roots=(folder,)
    )
    async with open_read_only(settings.data_dir / DATABASE_FILE) as store:
        loaded, policy = await prepare_resolution(ResolveInputs(settings=settings), store, context, None)
    resolution = resolve(loaded, context, policy)
    for spec in resolution.servers:
        if spec.name == name:
            return spec
    for refusal in resolution.refusals:
        if refusal.server == name:
            raise HoldfastError(codes.UNKNOWN_SERVER, f"{name!r} cannot be used: {refusal.reason}")
    raise unknown_server(name, loaded, resolution)
