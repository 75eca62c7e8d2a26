"""`holdfast call`: call one tool, once."""

import json
import sys
from typing import Any

import click
import msgspec

from holdfast.cli import table
from holdfast.cli.opening import Where, opened, session_options, with_host
from holdfast.connect.call import Answer
from holdfast.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT
from holdfast.wire.strict import Unreadable, read


@click.command()
@click.argument("tool", metavar="SERVER.TOOL")
@click.argument("arguments", metavar="[JSON]", default="{}")
@session_options
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help="Seconds to wait for the answer; otherwise as set by links.call_seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def call(tool: str, arguments: str, where: Where, timeout: float | None, *, as_json: bool) -> None:
    """Call one tool of one server, in a session of its own.

    Prints what the tool answered. Exits with 0 when it did what it was asked, 1 when not, 2 when called wrongly.
    The arguments are a JSON object; - reads them from standard input.

    \b
    Examples:
      holdfast call files.list
      holdfast call files.read '{"path": "README.md"}'
    """
    given = _arguments(sys.stdin.read() if arguments == "-" else arguments)
    server, dot, _ = tool.rpartition(".")
    if not dot:
        raise click.UsageError(f"{tool!r} is not of the form SERVER.TOOL; `holdfast tools` lists them.")

    async def work(host: Host) -> Answer:
        async with opened(host, where.opening(only=server)) as session:
            answer = await session.call(tool, given, timeout=timeout)
            refusals = [refusal for refusal in session.refusals if refusal.server == server]
            if answer.code == codes.UNKNOWN_TOOL.name and refusals:
                raise HoldfastError(codes.UNKNOWN_SERVER, f"{server}: {refusals[0].reason}")
        if answer.code == codes.UNKNOWN_TOOL.name and not as_json:
            raise HoldfastError(codes.UNKNOWN_TOOL, await _what_instead(host, where, server, answer))
        return answer

    answer = with_host(work)
    if as_json:
        click.echo(json.dumps(_for_programs(answer), indent=2))
    else:
        _for_people(answer)
    sys.exit(0 if answer.ok else 1)


async def _what_instead(host: Host, where: Where, server: str, answer: Answer) -> str:
    """What is not there, the nearest that is, and where to look."""
    from difflib import get_close_matches

    _, resolution = await host.plan(where.opening())
    names = [spec.name for spec in resolution.servers]
    if server in names:
        return f"{answer.message} See which there are: holdfast tools {server}"
    near = get_close_matches(server, names, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no server {server[:80]!r} here.{meant} See which tools there are: holdfast tools"


def _arguments(text: str) -> dict[str, Any]:
    try:
        return read(text.encode(), dict[str, Any], DEFAULT)
    except Unreadable as error:
        raise click.UsageError(
            f'The arguments are no JSON object: {error}. Write them like \'{{"path": "README.md"}}\'.'
        ) from None


def _for_programs(answer: Answer) -> dict[str, Any]:
    return {
        "ok": answer.ok,
        "code": answer.code,
        "message": answer.message,
        "content": answer.content,
        "structured": answer.data,
        "state_lost": answer.state_lost,
    }


def _for_people(answer: Answer) -> None:
    match answer.data:
        case {"ok": False, "error": str(error), "hint": str(hint)}:  # one of the toolkit's servers
            _say(f"Error: {error}\nHint: {hint}", err=True)
            return
        case _:
            pass
    for block in answer.content:
        match block.get("type"):
            case "text":
                _say(str(block.get("text")), err=not answer.ok)
            case kind:
                size = len(msgspec.json.encode(block))
                click.echo(
                    f"({kind}, {block.get('mimeType', 'unknown type')}, {size} bytes; --json prints it)"
                )
    if not answer.content and answer.data is not None:
        click.echo(json.dumps(answer.data, indent=2))


def _say(text: str, *, err: bool) -> None:
    """Print what a server said: to the letter for a program, and without what would steer a person's terminal."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = "\n".join(table.plain(line.replace("\t", "    ")) for line in text.split("\n"))
    click.echo(text, err=err, color=True)
