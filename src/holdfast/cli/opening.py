"""What every command that opens a session has in common: its options, its progress, its refusals."""

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
from holdfast.cli.place import checked
from holdfast.cli.table import plain
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import parse_trust
from holdfast.session.session import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where a command's session is, and how far it is trusted."""

    cwd: Path
    workspace: str
    trust: str | None

    def opening(self, *, only: str | None = None) -> Opening:
        """The opening that the options ask for; `only` names the one server that the command is about."""
        try:
            cwd = self.cwd.absolute()
        except FileNotFoundError:
            named = f", {place!r}," if (place := os.environ.get("PWD")) else ""
            raise HoldfastError(
                codes.BAD_FOLDER, f"The folder that you are in{named} is not there any more. Go to another."
            ) from None
        return Opening(
            cwd=cwd,
            workspace=self.workspace,
            trust=parse_trust(self.trust) if self.trust is not None else None,
            source="cli",
            only=only,
        )


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options `--cwd`, `--workspace` and `--trust`, which reach the command as `where`."""

    @wraps(command)
    def with_where(*args: Any, cwd: Path, workspace: str, trust: str | None, **kwargs: Any) -> None:
        command(*args, where=Where(cwd=cwd, workspace=workspace, trust=trust), **kwargs)

    folder = click.Path(path_type=Path, file_okay=False, exists=True)
    for option in (
        click.option(
            "--trust", help="direct or sandboxed; never more than the workspace and the host allow."
        ),
        click.option(
            "--workspace", default="", help="A workspace's name; otherwise the one this folder is in."
        ),
        click.option("--cwd", type=folder, default=Path(), help="The session's folder; otherwise this one."),
    ):
        with_where = option(with_where)
    return with_where


def with_host(work: Callable[[Host], Coroutine[Any, Any, T]]) -> T:
    """Run something with a host, logging as the settings say."""
    loaded = settings.load()
    checked(loaded.data_dir)
    telemetry.configure(loaded.log.level, loaded.log.format)

    async def run() -> T:
        async with Host(settings=loaded) as host:
            return await work(host)

    return asyncio.run(run())


@asynccontextmanager
async def opened(host: Host, asked: Opening) -> AsyncIterator[Session]:
    """A session with its servers up; a person sees which ones it waits for."""
    session = await host.open(asked)
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
                status.update(f"starting {', '.join(map(plain, waiting))}")
                await asyncio.sleep(0.1)

        task = asyncio.get_running_loop().create_task(follow())
        try:
            yield
        finally:
            task.cancel()
