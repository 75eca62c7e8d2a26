"""Opens a session for one command: the command-line options, the host, and a spinner while servers start."""

import asyncio
import contextlib
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import log_output, settings
from holdfast.cli.options import trust_option, user_option, workspace_option
from holdfast.cli.terminal_text import replace_unprintable
from holdfast.host.data_folder import check_data_folder
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.descriptor_limit import raise_descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.model.parse_text import parse_user_id
from holdfast.model.trust import parse_trust
from holdfast.session.session import Session
from holdfast.store.suspension import suspend_between_transactions

T = TypeVar("T")

# Commands in messages that take the options of a session, unless they already have --cwd.
_COMMANDS = re.compile(
    r"\bholdfast (?:call|chat|tools|servers (?:approve|explain|list))(?![\w-])(?![^\n]* --cwd )"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The values of `--cwd`, `--workspace`, `--trust` and `--user`."""

    cwd: Path
    workspace: str
    trust: str | None
    user_id: str = ""

    def to_open_options(self, *, only_server: str | None = None, keep: bool = True) -> OpenOptions:
        """The options for `host.open`. With `only_server`, the session gets only this server.

        Without `keep`, the session is not stored. Its calls are audited in any case.
        """
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
            user_id=self.user_id or None,
            opened_by="cli",
            only_server=only_server,
            extra_builtins=frozenset({only_server} if only_server else ()),
            keep=keep,
        )

    def to_arguments(self) -> list[str]:
        """The options that were given, as arguments of a command: `["--cwd", "/tmp"]`."""
        given = {
            "--cwd": str(self.cwd) if self.cwd != Path() else "",
            "--workspace": self.workspace,
            "--trust": self.trust or "",
            "--user": self.user_id,
        }
        return [word for option, value in given.items() if value for word in (option, value)]

    def add_to_commands(self, text: str) -> str:
        """Add the given options to each command that a message suggests, so that the command acts on the same session."""
        arguments = self.to_arguments()
        return _COMMANDS.sub(lambda found: f"{found[0]} {shlex.join(arguments)}", text) if arguments else text

    def add_to_error(self, error: HoldfastError) -> HoldfastError:
        """The same error, with the given options added to the commands in its message and hint."""
        message, hint = self.add_to_commands(error.message), self.add_to_commands(error.hint)
        if (message, hint) == (error.message, error.hint):
            return error
        return HoldfastError(error.code, message, **(error.details | {"hint": hint}))


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--cwd`, `--workspace`, `--trust` and `--user`. The command gets them as its parameter `options`."""

    @wraps(command)
    def with_options(
        *args: Any, cwd: Path, workspace: str, trust: str | None, user_id: str, **kwargs: Any
    ) -> None:
        given = SessionOptions(
            cwd=cwd, workspace=workspace, trust=trust, user_id=parse_user_id(user_id) or ""
        )
        try:
            command(*args, options=given, **kwargs)
        except HoldfastError as error:
            raise given.add_to_error(error) from error

    cwd_option = click.option(
        "--cwd",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        default=Path(),
        help="The session's folder. Default: the current one.",
    )
    return cwd_option(workspace_option(trust_option(user_option(with_options))))


def run_with_host(work: Callable[[Host], Coroutine[Any, Any, T]]) -> T:
    """Configure logging from the settings, open a host, and run a function with it."""
    loaded = settings.load()
    check_data_folder(loaded.data_dir)
    log_output.configure(loaded.log.level, loaded.log.format)
    raise_descriptor_limit()
    suspend_between_transactions()

    async def run() -> T:
        async with Host(settings=loaded) as host:
            return await work(host)

    return asyncio.run(run())


@asynccontextmanager
async def open_session(host: Host, options: OpenOptions) -> AsyncIterator[Session]:
    """Open a session and wait until its servers have started or failed. Until then, a terminal shows which are starting."""
    session = await host.open(options)
    try:
        with _spinner(session):
            await session.wait_ready_and_store()
        yield session
    finally:
        await session.close()


@contextlib.contextmanager
def _spinner(session: Session) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting servers") as status:

        async def show_starting() -> None:
            while starting := session.starting:
                status.update(Text(f"starting {', '.join(map(replace_unprintable, starting))}"))
                await asyncio.sleep(0.1)

        task = asyncio.get_running_loop().create_task(show_starting())
        try:
            yield
        finally:
            task.cancel()
