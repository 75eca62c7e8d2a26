"""One session: what it is, what was said in it, and all of it for another program."""

import json
from collections import Counter
from pathlib import Path

import click
import msgspec

from holdfast.cli import table
from holdfast.cli.named import find_session
from holdfast.cli.output import STANDARD, output_option, write_lines
from holdfast.cli.place import path_option
from holdfast.cli.reading import with_reading
from holdfast.cli.sessions.open_turn import open_turn
from holdfast.cli.sessions.work import ago, for_programs
from holdfast.model.event import ServersResolved
from holdfast.store import clock
from holdfast.store.interrupted import endings
from holdfast.store.lease import is_interrupted
from holdfast.store.rows import StoredEvent, StoredSession
from holdfast.store.store import Store


@click.command()
@click.argument("session", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@path_option
def show(*, session: str, as_json: bool, path: Path | None) -> None:
    """Say all there is to know about one session."""

    async def work(store: Store) -> tuple[StoredSession, ServersResolved | None, Counter[str]]:
        stored = await find_session(store, session)
        session_id = stored.context.session_id
        resolution = await store.read(lambda reads: reads.resolution(session_id))
        kinds = Counter([type(event.event).__name__ async for event in store.events(session_id)])
        return stored, resolution, kinds

    stored, resolution, kinds = with_reading(path, work)
    servers = resolution.servers if resolution is not None else ()
    refusals = resolution.refusals if resolution is not None else ()
    if as_json:
        told = {
            **for_programs(stored),
            "servers": servers,
            "refusals": [
                {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
                for refusal in refusals
            ],
            "kinds": dict(kinds),
        }
        click.echo(json.dumps(told, indent=2))
        return
    context, unended = stored.context, open_turn(stored)
    rows = [
        ("id", context.session_id),
        ("title", stored.title or "(nothing was said)"),
        ("state", stored.state + (f"; its last turn {unended}" if unended else "")),
        ("folder", context.cwd),
        *(("also", root) for root in context.roots[1:]),
        ("workspace", context.workspace_id or "(none)"),
        ("trust", context.trust_level),
        ("from", stored.source),
        ("begun", ago(stored.created)),
        ("last used", ago(stored.updated)),
        ("turns", str(kinds["Prompted"])),
        ("calls", str(kinds["ToolCalled"])),
        ("events", str(stored.last_seq)),
        ("servers", ", ".join(servers) or "(none)"),
        *((f"not {refusal.server}", refusal.reason) for refusal in refusals),
    ]
    if context.parent_session_id:
        rows.insert(1, ("parent", context.parent_session_id))
    table.show(("what", ""), rows)


@click.command()
@click.argument("session", metavar="ID")
@path_option
def replay(*, session: str, path: Path | None) -> None:
    """Print a session's conversation; nothing is called."""
    from holdfast.cli.screen import Screen

    screen = Screen()

    async def work(store: Store) -> None:
        stored = await find_session(store, session)
        async for event in store.events(stored.context.session_id):
            screen.show(event.event)
        if is_interrupted(stored, clock.now()):
            for ending in await store.read(lambda reads: endings(reads, stored.context.session_id)):
                screen.show(ending.event)
        elif stored.open_turn:
            screen.new_line()
            screen.say(f"This turn {open_turn(stored)}.", "yellow")
        screen.new_line()

    with_reading(path, work)


@click.command()
@click.argument("session", metavar="ID")
@output_option
@path_option
def export(*, session: str, output: Path | None, path: Path | None) -> None:
    """Write a session's events as JSON lines.

    The first line is the session; each further one is an event with its place, its time and its kind.
    """

    async def work(store: Store) -> list[str]:
        stored = await find_session(store, session)
        first = json.dumps({"session": for_programs(stored)})
        return [first, *[_line(event) async for event in store.events(stored.context.session_id)]]

    lines = with_reading(path, work)
    write_lines(output, lines)
    if output not in (None, STANDARD):
        click.echo(f"{len(lines) - 1} events written to {output}.", err=True)


def _line(stored: StoredEvent) -> str:
    event = stored.event
    told = {"seq": stored.seq, "at": stored.at.isoformat(), "kind": type(event).__name__, "event": event}
    return msgspec.json.encode(told).decode()
