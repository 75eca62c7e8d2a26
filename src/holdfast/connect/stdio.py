"""Connect to a server that is a program: start it, greet it, and leave nothing of it behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.greeted import greeted
from holdfast.connect.hearing import Hearing
from holdfast.connect.scope import Scope
from holdfast.connect.subscription import subscribed
from holdfast.connect.tail import Tail, follow
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.launch import Launch
from holdfast.model.mask import Mask
from holdfast.model.secrets import secrets_of
from holdfast.model.server import ServerSpec, Stdio
from holdfast.sandbox.child import Child
from holdfast.sandbox.keeper import Keeper
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import over_pipes

_LAST_WORDS_SECONDS = 0.2


@asynccontextmanager
async def open_stdio(
    spec: ServerSpec, scope: Scope | None, *, asks: Asks, meta: JsonObject, keeper: Keeper, terms: Terms
) -> AsyncIterator[Connection]:
    """Start the program and greet it; at the end it is gone, with all it started."""
    assert isinstance(spec.transport, Stdio)
    child = await keeper.spawn(_launch(spec, spec.transport, scope))
    try:
        tail, stderr = await follow(child.stderr, Mask.of(secrets_of(spec)))
        try:
            hearing = Hearing(asks)
            peer = Peer(handle=hearing.answer, notice=hearing.hear, limits=terms.limits)
            async with over_pipes(peer, child.stdout, child.stdin):
                try:
                    client = await greeted(spec, peer, asks=asks, meta=meta, terms=terms)
                except HoldfastError as error:
                    raise await _with_last_words(spec, error, tail, child) from None
                async with subscribed(client, asks):
                    yield Connection(client, ended=peer.ended, hearing=hearing, last_words=tail.text)
        finally:
            stderr.close()
    finally:
        child.close()  # what was cancelled half-way has handed nothing on yet
        await child.end(terms.end_seconds)


def _launch(spec: ServerSpec, stdio: Stdio, scope: Scope | None) -> Launch:
    return Launch(
        argv=(stdio.command, *stdio.args),
        env=stdio.env,
        cwd=(scope.context.cwd if scope is not None else "") or str(Path.home()),
        confinement=spec.confinement,
    )


async def _with_last_words(spec: ServerSpec, error: HoldfastError, tail: Tail, child: Child) -> HoldfastError:
    # What a dying program says about it may still be on its way.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(tail.over.wait(), _LAST_WORDS_SECONDS)
    words, reason = tail.text(), error.message
    if error.code is codes.CONNECTION_CLOSED:
        reason = await _how_it_ended(child)
        words = words or "It said nothing about it. Run it by hand to see why."
    said = f"\n{words}" if words else ""
    return HoldfastError(error.code, f"Could not start {spec.name!r}: {reason}{said}", **error.details)


async def _how_it_ended(child: Child) -> str:
    try:
        status = await asyncio.wait_for(child.wait(), _LAST_WORDS_SECONDS)
    except TimeoutError:
        return "It closed its output before it had introduced itself."
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"It ended {how} before it had introduced itself."
