"""`holdfast dev`: try a server while you write it."""

import asyncio
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.open_session import SessionOptions, session_options
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.host.server_config import ServerConfig


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    default="auto",
    show_default=True,
    help="When a tool may change something: ask you, allow it, or refuse it.",
)
@session_options
def dev(command: tuple[str, ...], options: SessionOptions, *, mode: str) -> None:
    """Try a server while you write it: call its tools at a prompt; saving a file restarts the server.

    COMMAND is a Python file, or the server's command line after `--`. The server needs no approval, because it is your own program. It
    runs with your rights or, with `--trust sandboxed`, confined. The session has no other server, and is not stored.

    \b
    Examples:
      holdfast dev notes.py
      holdfast dev --workspace blog notes.py
      holdfast dev -- python -m shop
      holdfast dev -- node build/index.js
      echo '/call notes.list_notes {}' | holdfast dev notes.py
    """
    from holdfast import log_output, settings
    from holdfast.cli.chat.dev_chat import DevChat
    from holdfast.cli.chat.own_chat import ChatOptions
    from holdfast.cli.exit_deadline import ExitDeadline
    from holdfast.host.data_folder import check_data_folder
    from holdfast.host.server_config import parse_servers
    from holdfast.host.session_folders import check_folder
    from holdfast.model.permission import Mode
    from holdfast.resolve.protected_paths import paths_closed_to_tools

    script = _find_script(command)
    _check_program(command[0])
    # Spaces would end the name of a tool in `/call`.
    name = "server" if script is None else re.sub(r"[^\w.-]+", "_", script.stem)
    argv = [sys.executable, *command] if command[0].endswith(".py") else [*command]
    entry: ServerConfig = {"trust_level": "sandboxed"}  # sandboxed sessions may use the server, too
    if script is None:  # a command such as `python -m shop` finds its code in the current folder
        entry["cwd"] = str(Path.cwd())
    else:  # the server may be started in another folder
        argv = [
            str(script) if Path(word) == script or Path(word).resolve() == script else word for word in argv
        ]
    entry["command"], entry["args"] = argv[0], argv[1:]
    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    check_data_folder(loaded.data_dir)
    opened = options.to_open_options(keep=False)
    check_folder("--cwd", str(opened.cwd), paths_closed_to_tools(loaded))
    chat_options = ChatOptions(
        settings=loaded,
        open_options=replace(
            opened, opened_by="chat", servers=parse_servers({name: entry}), only_these=True, mode=Mode(mode)
        ),
    )
    folder = script.parent if script is not None else Path.cwd()
    with ExitDeadline() as deadline:
        chat = DevChat(chat_options, name, argv, folder, deadline.start)
        exit_code = asyncio.run(chat.run())
    sys.exit(exit_code)


def _find_script(command: tuple[str, ...]) -> Path | None:
    """The path of the first word of the command that is an existing file with a suffix; None if there is none.

    Raise if the first word is a Python file that does not exist.
    """
    first = Path(command[0])
    if first.suffix == ".py" and not first.is_file():
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"There is no file {command[0]!r}.",
            hint="Give the path of your server's file, or its command after `--`.",
        )
    found = (Path(word) for word in command)
    return next((path.resolve() for path in found if path.suffix and path.is_file()), None)


def _check_program(program: str) -> None:
    """Raise if the first word of the command is neither a Python file nor a program: the chat would have no server."""
    if program.endswith(".py") or shutil.which(program):
        return
    if re.match(r"https?://", program, re.IGNORECASE):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{program} is the URL of a server that runs already; `holdfast dev` starts a server.",
            hint=f"To see its tools: holdfast probe {shlex.quote(program)}. To call them: holdfast servers add NAME --url {shlex.quote(program)}, "
            "then holdfast chat.",
        )
    problem = f"There is no program {program!r}."
    if Path(program).is_file():
        problem = f"{program!r} is not a program that can be started."
    hint = "Give the path of your server's Python file, or the command that starts it after `--`."
    if Path(f"{program}.py").is_file():
        hint = f"Did you mean {program}.py? {hint}"
    raise HoldfastError(codes.BAD_ARGUMENT, problem, hint=hint)
