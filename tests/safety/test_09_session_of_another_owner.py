"""Attack 9: load, resume, prompt, list or delete the session of another owner."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.host.host import Host
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId, new_session_id
from holdfast.model.trust import Trust
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.types import NewSession
from tests.journeys.editor import RpcError, editor, environment

pytestmark = pytest.mark.anyio


async def sessions(home: Path) -> tuple[SessionId, SessionId]:
    """The ids of a session of another user, and of no session."""
    theirs = SessionContext(
        session_id=new_session_id(), trust_level=Trust.DIRECT, cwd=str(home.resolve()), user_id="mallory"
    )
    async with SqliteStore(home / "data" / DATABASE_FILE) as store:
        await store.create(NewSession(context=theirs, title="private"))
    return theirs.session_id, new_session_id()


@pytest.mark.promise("ACP-06", "AUD-01")
async def test_session_of_another_owner_looks_unknown_and_the_attempt_is_audited(tmp_path: Path):
    theirs, unknown = await sessions(tmp_path)

    async def attempts(session: str) -> list[Any]:
        answers: list[Any] = []
        load_params: dict[str, Any] = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        requests: list[tuple[str, dict[str, Any]]] = [
            ("session/load", load_params),
            ("session/resume", {**load_params, "cwd": "/"}),
            ("session/prompt", {"sessionId": session, "prompt": []}),
            ("session/close", {"sessionId": session}),
            ("session/delete", {"sessionId": session}),
            ("session/set_mode", {"sessionId": session, "modeId": "auto"}),
            ("session/list", {}),
        ]
        for method, params in requests:
            try:
                answers.append(await attacker.request(method, params))
            except RpcError as error:
                answers.append((error.code, error.message, error.data))
        return json.loads(json.dumps(answers).replace(session, "SESSION"))

    async with editor(tmp_path) as attacker:
        answers, answers_for_unknown = await attempts(theirs), await attempts(unknown)
    async with SqliteStore(tmp_path / "data" / DATABASE_FILE) as store:
        kept = await store.session(theirs)
        audit = await store.read(lambda tx: [json.loads(row.body) for row in tx.audit_rows()])

    assert answers == answers_for_unknown
    assert kept is not None
    denied = [row for row in audit if row["kind"] == "denied" and row["session_id"] == theirs]
    assert len(denied) == 6
    assert {row["reason"] for row in denied} == {"it is another user's"}


async def test_control_the_owner_finds_the_session(tmp_path: Path):
    theirs, _ = await sessions(tmp_path)

    loaded = settings.load(tmp_path / "config.toml", environment(tmp_path))
    async with Host(settings=loaded) as host:
        found = await host.find_session(theirs, "mallory")
        page = await host.store.sessions(SessionQuery(visibility=ALL_SESSIONS))

    assert found.title == "private"
    assert [stored.title for stored in page.items] == ["private"]
