"""Open a session for one command: its command-line options, its host, and a spinner while servers start."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import settings, telemetry
from holdfast.cli.open_store import check_data_dir
from holdfast.cli.text import replace_unprintable
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import parse_trust
from holdfast.session.session import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The values of `--cwd`, `--workspace` and `--trust`."""

    cwd: Path
    workspace: str
    trust: str | None

    def to_open_options(self, *, only_server: str | None = None) -> OpenOptions:
        """The session to open; with `only_server`, it gets this one server."""
        try:
            cwd = self.cwd.absolute()
        except FileNotFoundError:
            name = f", {folder!r}," if (folder := os.environ.get("PWD")) else ""
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"The current folder{name} no longer exists.",
                hint="Change to another folder.",
            ) from None
        return OpenOptions(
            cwd=cwd,
            workspace=self.workspace,
            trust=parse_trust(self.trust) if self.trust is not None else None,
            opened_by="cli",
            only_server=only_server,
        )


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--cwd`, `--workspace` and `--trust`; the command gets them as `options`."""

    @wraps(command)
    def with_options(*args: Any, cwd: Path, workspace: str, trust: str | None, **kwargs: Any) -> None:
        command(*args, options=SessionOptions(cwd=cwd, workspace=workspace, trust=trust), **kwargs)

    folder = click.Path(path_type=Path, file_okay=False, exists=True)
    for option in (
        click.option(
            "--trust",
            metavar="LEVEL",
            help="How much to trust the session: direct or sandboxed. The workspace and the host can only lower it.",
        ),
        click.option(
            "--workspace",
            default="",
            metavar="NAME",
            help="The name of a workspace. Default: the one that contains the folder.",
        ),
        click.option(
            "--cwd", type=folder, default=Path(), help="The session's folder. Default: the current one."
        ),
    ):
        with_options = option(with_options)
    return with_options


def run_with_host(work: Callable[[Host], Coroutine[Any, Any, T]]) -> T:
    """Run a function with a host, with logging configured from the settings."""
    loaded = settings.load()
    check_data_dir(loaded.data_dir)
    telemetry.configure(loaded.log.level, loaded.log.format)

    async def run() -> T:
        async with Host(settings=loaded) as host:
            return await work(host)

    return asyncio.run(run())


@asynccontextmanager
async def open_session(host: Host, options: OpenOptions) -> AsyncIterator[Session]:
    """Open a session and wait until its servers have started or failed. A terminal shows which are still starting."""
    session = await host.open(options)
    try:
        with _spinner(session):
            await session.wait_for_servers()
        yield session
    finally:
        await host.close_session(session)


@contextlib.contextmanager
def _spinner(session: Session) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting servers") as status:

        async def follow() -> None:
            while waiting := session.starting:
                status.update(Text(f"starting {', '.join(map(replace_unprintable, waiting))}"))
                await asyncio.sleep(0.1)

        task = asyncio.get_running_loop().create_task(follow())
        try:
            yield
        finally:
            task.cancel()
