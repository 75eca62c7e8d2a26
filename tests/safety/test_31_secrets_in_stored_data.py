"""Attack 31: canary secrets in arguments, results, errors and headers must not be stored or logged."""

import base64
import io
import json
import logging
from pathlib import Path

import pytest

from holdfast import log_output
from holdfast.audit.audit import Audit
from holdfast.masking import log_mask
from holdfast.masking.configured_secrets import secrets_in_mapping
from holdfast.masking.log_mask import LogSecrets
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext
from holdfast.model.event import (
    Outcome,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    TurnEnded,
    UnknownEvent,
)
from holdfast.model.ids import new_session_id
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import NewSession
from tests.audit.records import record

ENVIRONMENT = {
    "PATH": "/usr/bin",
    "SERVICE_API_KEY": 'canary-env-"quoted"-4f9a2c',
    "DB_PASSWORD": "canary/env?7d1e",
}
HEADERS = {"Authorization": "Bearer canary.header.91ab7c", "Accept": "application/json"}
CANARIES = ['canary-env-"quoted"-4f9a2c', "canary/env?7d1e", "canary.header.91ab7c"]
MASK = Mask.of(secrets_in_mapping(ENVIRONMENT)).plus(Mask.of(secrets_in_mapping(HEADERS)))

pytestmark = pytest.mark.anyio


@pytest.mark.promise("AUD-03")
async def test_no_canary_is_in_any_file_or_log_line(tmp_path: Path) -> None:
    log = await _run_session(tmp_path, MASK)

    assert _find_canaries(tmp_path, log) == []


async def test_control_without_masking_every_canary_is_found(tmp_path: Path) -> None:
    log = await _run_session(tmp_path, Mask())

    assert set(CANARIES) <= set(_find_canaries(tmp_path, log))


async def _run_session(folder: Path, mask: Mask) -> str:
    """Run a session in which every canary is in every kind of event, record and log line, and return the log."""
    stream = io.StringIO()
    log_output.configure("debug", "json", stream)
    secrets = LogSecrets.of("", mask, mask)
    log_mask.add_secrets(secrets)
    try:
        await _session(folder / "holdfast.db", mask)
    finally:
        log_mask.remove_secrets(secrets)
        log_output.configure("info", "auto")
    return stream.getvalue()


async def _session(path: Path, mask: Mask) -> None:
    context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    async with SqliteStore(path) as store, Audit(store) as audit:
        await store.create(NewSession(context=context))
        hold = await store.acquire(context.session_id)
        async with store.appender(hold, mask=mask) as stream:
            for canary in CANARIES:
                for event in _events(canary):
                    audited = record(
                        server=canary, tool=canary, reason=f"said {canary}", arguments={"a": [canary]}
                    )
                    await stream.append(event, on_append=audit.append_callback(audited, mask))
                try:
                    raise RuntimeError(f"the server said {canary}")
                except RuntimeError:
                    logging.getLogger("holdfast.test").exception(
                        "failed on %s", canary, extra={"url": f"x?k={canary}"}
                    )


def _events(canary: str):
    block: JsonObject = {"type": "text", "text": f"<{canary}>", "deep": [{canary: canary}]}
    yield Prompted(turn_id="turn_1", message_id="msg_1", blocks=(block,))
    yield UnknownEvent(kind="danced", body=json.dumps({"steps": [block]}).encode())
    yield Replied(message_id="msg_2", text=f"the key is {canary}, as JSON {json.dumps(canary)}")
    yield Thought(message_id="msg_3", text=base64.b64encode(canary.encode()).decode())
    yield Planned(entries=(block,))
    yield ToolCalled(
        call_id="c", server="s", tool="t", arguments={"x": canary, "token": canary}, title=canary
    )
    yield ToolEnded(call_id="c", outcome=Outcome.FAILED, content=(block,), structured={"error": canary})
    yield ServersResolved(
        servers=(), refusals=(Refusal(server="s", stage=Stage.CONNECT, reason=f"stderr: {canary}"),)
    )
    yield SessionClosed(reason=canary)
    yield Titled(title=canary)
    yield TurnEnded(turn_id="turn_1", reason=StopReason.END_TURN, usage={canary: canary})


def _find_canaries(folder: Path, log: str) -> list[str]:
    everything = b"\0".join(path.read_bytes() for path in folder.iterdir()) + log.encode()
    spellings = {spelling: canary for canary in CANARIES for spelling in Mask.of([canary]).secrets}
    return sorted({canary for spelling, canary in spellings.items() if spelling.encode() in everything})
