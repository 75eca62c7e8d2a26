"""Attack 9: a session of another owner is loaded, resumed, prompted, listed or deleted."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.host import DATABASE, Host
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId, new_session_id
from holdfast.model.trust import Trust
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import NewSession
from holdfast.store.sqlite import SqliteStore
from tests.journeys.editor import Refused, editor, environment

pytestmark = pytest.mark.anyio


async def sessions(home: Path) -> tuple[SessionId, SessionId]:
    """One of somebody else's, and one that nobody has."""
    theirs = SessionContext(
        session_id=new_session_id(), trust_level=Trust.DIRECT, cwd=str(home.resolve()), user_id="mallory"
    )
    async with SqliteStore(home / "data" / DATABASE) as store:
        await store.create(NewSession(context=theirs, title="private"))
    return theirs.session_id, new_session_id()


@pytest.mark.promise("ACP-06", "AUD-01")
async def test_it_looks_exactly_like_one_that_is_not_there_and_the_attempt_is_in_the_audit(tmp_path: Path):
    theirs, nobodys = await sessions(tmp_path)

    async def attempts(session: str) -> list[Any]:
        answers: list[Any] = []
        place: dict[str, Any] = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        asked: list[tuple[str, dict[str, Any]]] = [
            ("session/load", place),
            ("session/resume", {**place, "cwd": "/"}),
            ("session/prompt", {"sessionId": session, "prompt": []}),
            ("session/close", {"sessionId": session}),
            ("session/delete", {"sessionId": session}),
            ("session/set_mode", {"sessionId": session, "modeId": "auto"}),
            ("session/list", {}),
        ]
        for method, params in asked:
            try:
                answers.append(await mallet.ask(method, params))
            except Refused as error:
                answers.append((error.code, error.message, error.data))
        return json.loads(json.dumps(answers).replace(session, "SESSION"))

    async with editor(tmp_path) as mallet:
        seen, unseen = await attempts(theirs), await attempts(nobodys)
    async with SqliteStore(tmp_path / "data" / DATABASE) as store:
        kept = await store.session(theirs)
        audit = await store.read(lambda reads: [json.loads(row.body) for row in reads.audit_rows()])

    assert seen == unseen
    assert kept is not None
    denied = [row for row in audit if row["kind"] == "denied" and row["session_id"] == theirs]
    assert len(denied) == 6
    assert {row["reason"] for row in denied} == {"it is another owner's"}


async def test_control_its_owner_finds_it(tmp_path: Path):
    theirs, _ = await sessions(tmp_path)

    loaded = settings.load(tmp_path / "config.toml", environment(tmp_path))
    async with Host(settings=loaded) as host:
        found = await host.find(theirs, "mallory")
        page = await host.store.sessions(SessionQuery(reach=OPERATOR))

    assert found.title == "private"
    assert [stored.title for stored in page.items] == ["private"]
