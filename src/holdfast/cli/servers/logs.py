"""`holdfast servers logs`: list the logs of servers, print one, and follow it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from holdfast import settings
from holdfast.cli.find_session import find_session_id, short_id
from holdfast.cli.options import json_lines_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.connect.log_files import LOG_FOLDER, LogFile, LogReader, find_logs, logs_command, read_log
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_POLL_SECONDS = 0.2


@click.command()
@click.argument("name", required=False)
@click.option(
    "--session",
    "typed_id",
    metavar="ID",
    help="Only logs of this session. Default: all sessions; with NAME, the one with the latest log.",
)
@click.option("--follow", is_flag=True, help="Keep printing new lines, including those of later sessions.")
@click.option(
    "--lines", type=click.IntRange(1), metavar="N", help="Print only the last N lines. Default: all."
)
@json_lines_option
def logs(*, name: str | None, typed_id: str | None, follow: bool, lines: int | None, as_json: bool) -> None:
    """Show what a server wrote to standard error. Without NAME, list all logs.

    Each server that a session starts has a log, even in sessions of `holdfast call` and `holdfast tools`. A log has at most 512 KiB;
    older lines are dropped. Secrets are masked. Lines with | are from the server, lines with # from Holdfast.

    \b
    Examples:
      holdfast servers logs                    list the logs
      holdfast servers logs notes              print the latest log of a server
      holdfast servers logs notes --follow     print its new lines while you try it
    """
    folder = settings.load().data_dir / LOG_FOLDER
    if name is None:
        if follow:
            raise click.UsageError("Say which server to follow: holdfast servers logs NAME --follow")
        _list(_of_session(find_logs(folder), typed_id), as_json=as_json)
        return
    _print(_find(folder, name, typed_id, may_be_missing=follow), lines, as_json=as_json)
    if follow:
        for added in _new_lines(folder, name, typed_id):
            _print_line(added, as_json=as_json)


def _of_session(found: list[LogFile], typed_id: str | None) -> list[LogFile]:
    if typed_id is None:
        return found
    session = find_session_id({log.session for log in found}, typed_id)
    return [log for log in found if log.session == session]


def _find(folder: Path, name: str, typed_id: str | None, *, may_be_missing: bool) -> LogFile | None:
    """The latest log of the server. Without one, return None if `may_be_missing`, else raise."""
    found = _of_session(find_logs(folder), typed_id)
    latest = next((log for log in found if log.server == name), None)
    if latest is None and not may_be_missing:
        from difflib import get_close_matches

        close = get_close_matches(name, {log.server for log in found}, n=1)
        raise HoldfastError(
            codes.UNKNOWN_SERVER,
            f"There is no log of a server {name[:80]!r}. Remote servers have none, and neither do servers that run in Holdfast itself, such as `files`.",
            hint=f"Did you mean {close[0]!r}?" if close else "`holdfast servers logs` lists all logs.",
        )
    return latest


def _list(found: list[LogFile], *, as_json: bool) -> None:
    if as_json:
        for log in found:
            print_json(
                {
                    "server": log.server,
                    "session": log.session,
                    "bytes": log.size,
                    "written": _time(log),
                    "path": str(log.path),
                },
            )
    elif found:
        rows = [(log.server, short_id(log.session), f"{log.size:,} bytes", _time(log)) for log in found]
        print_table(("server", "session", "size", "last line"), rows)
        print_line(f"To print one: {logs_command(found[0].server)}", err=True)
    else:
        print_line("There are no logs yet. A server has one as soon as a session has started it.", err=True)


def _time(log: LogFile) -> str:
    return datetime.fromtimestamp(log.written, UTC).isoformat(sep=" ", timespec="seconds")


def _print(log: LogFile | None, lines: int | None, *, as_json: bool) -> None:
    if log is None:
        print_line("There is no log yet. Waiting until a session starts the server.", err=True)
        return
    if not as_json:
        print_line(f"session {short_id(log.session)}, {log.path}", err=True)
    shown = read_log(log.path).splitlines()
    for line in shown if lines is None else shown[-lines:]:
        _print_line(line, as_json=as_json)


def _print_line(line: str, *, as_json: bool) -> None:
    if not as_json:
        print_line(line)
        return
    at, _, rest = line.partition(" ")
    mark, _, text = rest.partition(" ")
    print_json({"at": at, "from": "holdfast" if mark == "#" else "server", "text": text})


def _new_lines(folder: Path, name: str, typed_id: str | None) -> Iterator[str]:
    """The lines that are added from now on, including those in the logs of later sessions."""
    readers = {log.path: LogReader(log.path, at_end=True) for log in find_logs(folder) if log.server == name}
    while True:
        time.sleep(_POLL_SECONDS)
        found = find_logs(folder)
        if typed_id is not None:
            found = _of_session(found, typed_id)
        for log in reversed(found):
            if log.server == name:
                yield from readers.setdefault(log.path, LogReader(log.path)).read_lines()
