"""`holdfast sessions show`, `replay` and `export`."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from holdfast.agent.model.usage import Usage, describe_usage, sum_usage
from holdfast.cli.find_session import find_session
from holdfast.cli.open_store import run_with_read_only_store
from holdfast.cli.options import json_option, output_option, path_option
from holdfast.cli.output import STDOUT, print_json, print_line, print_table, write_json_lines
from holdfast.cli.sessions.describe import SessionSummary, describe_open_turn, summarize, time_ago
from holdfast.model.event import Event, ServersResolved, ToolEnded, UnknownEvent, event_kind
from holdfast.session.storage_quota import MEGABYTE
from holdfast.store.end_interrupted import INTERRUPTED, missing_ends_unless_held
from holdfast.store.event_codec import is_json_object
from holdfast.store.store import Store
from holdfast.store.types import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """What `show` reads from the store about one session."""

    summary: SessionSummary
    resolution: ServersResolved | None
    """The servers that the session got at its last opening, and the refusals; None if that is not stored."""
    kinds: Counter[str]
    """How many events of each kind there are."""
    usage: Mapping[str, Usage]
    """What each agent has used, by its id. The id of the session's own agent is empty."""
    interrupted_calls: int
    stored_bytes: int


@click.command()
@click.argument("session", metavar="ID")
@json_option
@path_option
def show(*, session: str, as_json: bool, path: Path | None) -> None:
    """Show the details of one session.

    The details include how long each phase of the session's last opening took, and the start of each server.

    \b
    Example:
      holdfast sessions show 3f2a
    """

    async def work(store: Store) -> _Details:
        stored = await find_session(store, session)
        session_id = stored.context.session_id
        kinds, interrupted = Counter[str](), 0
        async for event in store.events(session_id):
            kinds[event_kind(event.event)] += 1
            interrupted += isinstance(event.event, ToolEnded) and event.event.code == INTERRUPTED
        summary = await summarize(store, stored)
        return _Details(
            summary=summary,
            resolution=await store.read(lambda tx: tx.resolution(session_id)),
            kinds=kinds,
            usage=await sum_usage(store.events(session_id)),
            interrupted_calls=interrupted + sum(end.call is not None for end in summary.interrupted),
            stored_bytes=await store.read(lambda tx: tx.stored_bytes(session_id)),
        )

    details = run_with_read_only_store(path, work)
    if as_json:
        _print_details_as_json(details)
    else:
        _print_details(details)


def _print_details_as_json(details: _Details) -> None:
    resolution = details.resolution
    refusals = resolution.refusals if resolution is not None else ()
    document = {
        **details.summary.to_json(),
        "servers": resolution.servers if resolution is not None else (),
        "refusals": [
            {"server": refusal.server, "stage": refusal.stage, "reason": refusal.reason}
            for refusal in refusals
        ],
        "stage_seconds": resolution.stage_seconds if resolution is not None else {},
        "server_seconds": resolution.server_seconds if resolution is not None else {},
        "kinds": dict(details.kinds),
        "bytes": details.stored_bytes,
        "interrupted_calls": details.interrupted_calls,
        "usage": {agent: usage.to_json() for agent, usage in details.usage.items()},
    }
    print_json(document)


def _print_details(details: _Details) -> None:
    summary, resolution, kinds = details.summary, details.resolution, details.kinds
    interrupted = details.interrupted_calls
    stored, context = summary.stored, summary.stored.context
    servers = resolution.servers if resolution is not None else ()
    refusals = resolution.refusals if resolution is not None else ()
    stage_seconds = resolution.stage_seconds if resolution is not None else {}
    server_seconds = resolution.server_seconds if resolution is not None else {}
    rows = [
        ("id", context.session_id),
        ("title", stored.title or "(no title)"),
        *([("tags", ", ".join(stored.tags))] if stored.tags else []),
        ("state", summary.state_text),
        ("folder", context.cwd),
        *(("other folder", root) for root in context.roots[1:]),
        ("workspace", context.workspace_id or "(none)"),
        ("trust", context.trust_level),
        *([("user", context.user_id)] if context.user_id else []),
        ("from", stored.source),
        ("created", time_ago(stored.created)),
        ("last used", time_ago(stored.updated)),
        ("turns", str(kinds["prompted"])),
        ("calls", str(kinds["tool_called"]) + (f"; {interrupted} interrupted" if interrupted else "")),
        ("events", f"{stored.last_seq}, {details.stored_bytes / MEGABYTE:,.1f} MB"),
        *((f"used by {agent}", line) for agent, line in describe_usage(details.usage)),
        ("servers", ", ".join(servers) or "(none)"),
        *(
            (f"refused {refusal.server}" if number == 0 else "", line)
            for refusal in refusals
            for number, line in enumerate(refusal.reason.splitlines())
        ),
        *([("opening", _describe_seconds(stage_seconds))] if stage_seconds else []),
        *([("starts", _describe_seconds(server_seconds))] if server_seconds else []),
    ]
    if context.parent_session_id:
        rows.insert(1, ("parent", context.parent_session_id))
    print_table(("key", "value"), rows)


def _describe_seconds(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds * 1000:,.0f} ms" for name, seconds in measured.items())


@click.command()
@click.argument("session", metavar="ID")
@path_option
def replay(*, session: str, path: Path | None) -> None:
    """Print a session's conversation, without calling any tools.

    \b
    Example:
      holdfast sessions replay 3f2a | less
    """
    from holdfast.cli.event_printer import EventPrinter

    printer = EventPrinter()

    async def work(store: Store) -> None:
        stored = await find_session(store, session)
        async for event in store.events(stored.context.session_id):
            printer.show_stored(event)
        missing = await store.read(lambda tx: missing_ends_unless_held(tx, stored))
        for end in missing:
            if not end.origin.agent:  # only the calls of a sub-agent are printed
                printer.show(end.event)
        if stored.open_turn and not missing:
            printer.new_line()
            printer.print(f"This turn {describe_open_turn(stored)}.", "yellow")
        printer.new_line()

    run_with_read_only_store(path, work)


@click.command()
@click.argument("session", metavar="ID")
@output_option
@path_option
def export(*, session: str, output: Path | None, path: Path | None) -> None:
    """Write a session's events as JSON lines.

    The first line describes the session. Each following line is an event, with its number, time and kind.

    \b
    Example:
      holdfast sessions export 3f2a --output session.jsonl
    """

    async def work(store: Store) -> list[str]:
        stored = await find_session(store, session)
        first = json.dumps({"session": (await summarize(store, stored)).to_json()})
        return [
            first,
            *[event_to_json_line(event) async for event in store.events(stored.context.session_id)],
        ]

    lines = run_with_read_only_store(path, work)
    write_json_lines(output, lines)
    if output not in (None, STDOUT):
        print_line(f"{len(lines) - 1} events written to {output}.", err=True)


def event_to_json_line(stored: StoredEvent) -> str:
    """Encode an event as one line of JSON, with its number, time and kind."""
    line = {
        "seq": stored.seq,
        "at": stored.at.isoformat(),
        "kind": event_kind(stored.event),
        **({"agent": stored.agent} if stored.agent else {}),
        **({"parent_call": stored.parent_call} if stored.parent_call else {}),
        **({"cause": stored.cause} if stored.cause else {}),
        "event": _body(stored.event),
    }
    return msgspec.json.encode(line).decode()


def _body(event: Event) -> object:
    match event:
        case UnknownEvent(body=body) if is_json_object(body):
            return msgspec.Raw(msgspec.json.format(body, indent=-1))  # on one line
        case UnknownEvent(body=body):
            return {"base64": body}
        case _:
            return event
