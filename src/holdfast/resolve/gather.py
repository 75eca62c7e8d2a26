"""What a session is resolved with: the lists of servers on this machine, approvals, the workspace and the settings."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from holdfast.model.context import SessionContext
from holdfast.model.json import Json
from holdfast.model.launch import Quota
from holdfast.model.secrets import secrets_written
from holdfast.model.server import ServerSpec, Source
from holdfast.model.workspace import Workspace
from holdfast.resolve.approval import OF_SERVERS
from holdfast.resolve.confine import Walls
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.load import load
from holdfast.resolve.own import own_folders
from holdfast.resolve.resolve import Policy
from holdfast.resolve.select import Narrowing
from holdfast.resolve.sources import read_documents
from holdfast.settings import Settings
from holdfast.store.store import Store

INLINE = "the program that runs the host"
# A project that nobody approved may have keys that nobody should see. It must not choose words to be hidden: in a
# question to the user, say. So of its values only those count that no word, path, host or command looks like.
_MADE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_-]{16,}")
_MOST = 100  # of a project's: whoever hides more wants to slow us down


def _everywhere(context: SessionContext) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A server that Holdfast brings along, and the sessions that have a use for it."""

    spec: ServerSpec
    fits: Callable[[SessionContext], bool] = _everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a host stands on, the same for all its sessions."""

    settings: Settings
    builtins: tuple[Builtin, ...] = ()
    inline: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Servers that the program itself gives its host."""
    no_sandbox: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


async def gather(
    ground: Ground,
    store: Store,
    context: SessionContext,
    workspace: Workspace | None,
    brought: Sequence[Json] = (),
) -> tuple[Loaded, Policy]:
    """Read what there is to read now: a file that changed counts from the next session on."""
    servers = ground.settings.servers
    project = Path(context.cwd) if context.cwd else None
    documents = await asyncio.to_thread(read_documents, servers.host_file, servers.user_file, project)
    written = load(documents, brought)
    inline = tuple(
        Entry(name=name, source=Source.HOST, origin=INLINE, value=value)
        for name, value in ground.inline.items()
    )
    approvals = await store.read(lambda reads: reads.approvals(OF_SERVERS))
    policy = Policy(
        builtins=tuple(builtin.spec for builtin in ground.builtins if builtin.fits(context)),
        reserved=frozenset(builtin.spec.name for builtin in ground.builtins),
        approved=frozenset(approval.content_hash for approval in approvals),
        narrowings=_narrowings(workspace),
        overrides=workspace.env if workspace is not None else {},
        aliases=ground.settings.aliases,
        walls=Walls(
            roots=context.roots,
            quota=workspace.quota if workspace is not None else Quota(),
            no_sandbox=ground.no_sandbox,
            off_limits=own_folders(ground.settings),
            reachable=servers.reachable,
            environ=ground.environ,
            pass_on=servers.pass_on,
        ),
    )
    entries = (*inline, *written.entries)
    return Loaded(
        entries=entries, refusals=written.refusals, secrets=tuple(_secrets(entries, brought))
    ), policy


def _secrets(entries: Sequence[Entry], brought: Iterable[Json]) -> Iterator[str]:
    for value in brought:  # also of what is no entry
        yield from secrets_written(value)
    for entry in entries:
        if entry.source is not Source.PROJECT:
            yield from secrets_written(entry.value)
    project = (entry for entry in entries if entry.source is Source.PROJECT)
    written = (secret for entry in project for secret in secrets_written(entry.value))
    yield from islice(filter(_MADE.fullmatch, written), _MOST)


def _narrowings(workspace: Workspace | None) -> tuple[Narrowing, ...]:
    if workspace is None:
        return ()
    return (
        Narrowing(whose=f"the workspace {workspace.slug}", servers=workspace.servers, tools=workspace.tools),
    )
