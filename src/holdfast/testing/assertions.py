"""Assertions about a session's calls and the audit, and functions that return events, calls and audit records."""

import itertools
from collections.abc import Mapping
from typing import Any

from holdfast.audit.record import AuditRecord, decode_record
from holdfast.events import Event, ToolCalled, ToolEnded
from holdfast.host.host import Host
from holdfast.model.json import JsonObject
from holdfast.model.similar_names import closest_tool
from holdfast.session.session import Session


async def events_of(session: Session) -> list[Event]:
    """Return all events of an open session so far, in order."""
    last = session.record.events.last
    events: list[Event] = []
    if last:
        async for stored in session.subscribe():
            events.append(stored.event)
            if stored.seq >= last:
                break
    return events


async def calls_of(session: Session, name: str = "") -> list[tuple[ToolCalled, ToolEnded | None]]:
    """Return the calls of a session, each with its end, or None if it has not ended. With `name`, only the calls of this `server.tool`."""
    happened = await events_of(session)
    ended = {event.call_id: event for event in happened if isinstance(event, ToolEnded)}
    return [
        (event, ended.get(event.call_id))
        for event in happened
        if isinstance(event, ToolCalled) and name in ("", f"{event.server}.{event.tool}")
    ]


async def assert_called(
    session: Session, name: str, arguments: Mapping[str, Any] | None = None, *, times: int | None = None
) -> None:
    """Fail unless the session called the tool `name` (`server.tool`).

    With `arguments`, only calls with exactly these arguments count, compared as they are stored: with secrets masked. With `times`, there
    must be exactly that many such calls. A call that was refused or failed also counts.
    """
    _check_name(session, name)
    made = [call.arguments for call, _ in await calls_of(session, name)]
    matching = made if arguments is None else [one for one in made if one == dict(arguments)]
    if matching if times is None else len(matching) == times:
        return
    wanted = "" if arguments is None else f" with {dict(arguments)!r}"
    happened = (
        f"not called{wanted}" if times is None else f"called {len(matching)} times{wanted}, not {times}"
    )
    raise AssertionError(f"{name} was {happened}. Its calls: {_shorten(made)}")


async def assert_not_called(session: Session, name: str) -> None:
    """Fail if the session called the tool `name` (`server.tool`). A call that was refused or failed also counts."""
    _check_name(session, name)
    made = [call.arguments for call, _ in await calls_of(session, name)]
    if made:
        raise AssertionError(f"{name} was called. Its calls: {_shorten(made)}")


async def audit_records(host: Host, session: Session | None = None) -> list[AuditRecord]:
    """Return the records of the audit, of one session or of all, oldest first."""
    session_id = None if session is None else session.context.session_id
    return await host.store.read(
        lambda tx: [decode_record(row.body) for row in tx.audit_rows(session_id=session_id)]
    )


async def assert_audit_intact(host: Host) -> None:
    """Fail if a record of the audit was changed or removed."""
    verdict = await host.verify_audit()
    if not verdict.is_intact:
        raise AssertionError(f"The audit is not intact: {verdict}")


def _check_name(session: Session, name: str) -> None:
    """Fail if no server of the session has this tool. Without this check, `assert_not_called` would pass for a misspelled name.

    If a server was refused, or its tools are not known, every name that begins with the server's name passes.
    """
    listed = session.listed_names
    refused = {refusal.server for refusal in session.refusals}
    if any(name.startswith(f"{server}.") for server in refused):
        return
    servers = [server for server in listed if name.startswith(f"{server}.")]
    if any(
        (tools := listed[server]) is None or name.removeprefix(f"{server}.") in tools for server in servers
    ):
        return
    known = sorted(f"{server}.{tool}" for server, tools in listed.items() for tool in tools or ())
    meant = closest_tool(name, known)
    advice = f"Did you mean {meant!r}?" if meant else f"The tools are: {', '.join(known)}."
    raise AssertionError(f"The session has no tool {name!r}. {advice}")


def _shorten(made: list[JsonObject]) -> str:
    return ", ".join(map(repr, itertools.islice(made, 10))) or "none"
