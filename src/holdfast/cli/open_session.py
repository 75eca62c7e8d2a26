"""Open a session for one command: the options it takes, the host it runs on, the progress it shows."""

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
from holdfast.host.opening import Opening
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

    def to_opening(self, *, only: str | None = None) -> Opening:
        """The session to open; with `only`, it gets this one server."""
        try:
            cwd = self.cwd.absolute()
        except FileNotFoundError:
            name = f", {folder!r}," if (folder := os.environ.get("PWD")) else ""
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"The current folder{name} no longer exists.",
                hint="Change to another folder.",
            ) from None
        return Opening(
            cwd=cwd,
            workspace=self.workspace,
            trust=parse_trust(self.trust) if self.trust is not None else None,
            source="cli",
            only=only,
        )


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--cwd`, `--workspace` and `--trust`; the command gets them as `options`."""

    @wraps(command)
    def with_options(*args: Any, cwd: Path, workspace: str, trust: str | None, **kwargs: Any) -> None:
        command(*args, options=SessionOptions(cwd=cwd, workspace=workspace, trust=trust), **kwargs)

    folder = click.Path(path_type=Path, file_okay=False, exists=True)
    for option in (
        click.option(
            "--trust", help="direct or sandboxed. Cannot exceed what the workspace and the host allow."
        ),
        click.option(
            "--workspace",
            default="",
            help="The name of a workspace. Default: the one that contains the folder.",
        ),
        click.option(
            "--cwd", type=folder, default=Path(), help="The session's folder. Default: the current one."
        ),
    ):
        with_options = option(with_options)
    return with_options


def run_with_host(work: Callable[[Host], Coroutine[Any, Any, T]]) -> T:
    """Run a function with a host, and log as the settings say."""
    loaded = settings.load()
    check_data_dir(loaded.data_dir)
    telemetry.configure(loaded.log.level, loaded.log.format)

    async def run() -> T:
        async with Host(settings=loaded) as host:
            return await work(host)

    return asyncio.run(run())


@asynccontextmanager
async def open_session(host: Host, opening: Opening) -> AsyncIterator[Session]:
    """A session whose servers have started; at a terminal, a spinner names those that have not."""
    session = await host.open(opening)
    try:
        with _spinner(session):
            await session.settle()
        yield session
    finally:
        await host.close_session(session)


@contextlib.contextmanager
def _spinner(session: Session) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("starting servers") as status:

        async def follow() -> None:
            while waiting := session.starting:
                status.update(f"starting {', '.join(map(replace_unprintable, waiting))}")
                await asyncio.sleep(0.1)

        task = asyncio.get_running_loop().create_task(follow())
        try:
            yield
        finally:
            task.cancel()
