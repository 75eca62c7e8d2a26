"""After a session is resumed, the first answer of each server that it had used says that the server's state is lost."""

from pathlib import Path

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.permission import Mode
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.journeys.conftest import cwd, home
from tests.journeys.editor import editor, tools_server

__all__ = ["cwd", "home", "make_host"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-09")]


async def test_first_answer_of_a_server_that_was_used_says_so_once(make_host: HostFactory, tmp_path: Path):
    entries = {"used": counter_entry(), "unused": counter_entry()}
    async with make_host(entries) as host:
        async with host.session(cwd=tmp_path) as session:
            await session.call("used.count")
            await session.call("files.list")
        again = await host.reopen(session.context.session_id, OpenOptions(cwd=tmp_path))
        answers = [
            await again.call(name) for name in ("used.count", "used.count", "unused.count", "files.list")
        ]
        await again.close()

    assert [answer.state_lost for answer in answers] == [True, False, False, False]
    assert answers[0].text.startswith("STATE_LOST: used was restarted.")


async def test_call_that_never_started_does_not_count_as_use(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host:
        async with host.session(cwd=tmp_path, permission=Mode.READ_ONLY) as session:
            refused = await session.call("c.count")
        again = await host.reopen(session.context.session_id, cwd=tmp_path)
        await again.permission.change_mode(Mode.AUTO)
        answer = await again.call("c.count")
        await again.close()

    assert (refused.ok, answer.ok, answer.state_lost) == (False, True, False)


@pytest.mark.parametrize("method", ["load", "resume"])
async def test_editor_is_told_after_load_and_resume(home: Path, cwd: Path, method: str):
    servers = [tools_server()]
    async with editor(home) as zed:
        session = await zed.new(cwd, *servers)
        await zed.prompt(session, "/call tools.count {}")
        await zed.request("session/close", {"sessionId": session})
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": servers}
        await zed.request(f"session/{method}", params)
        zed.received.clear()
        await zed.prompt(session, "/call tools.count {}")
        first = str(zed.updates(session, "tool_call_update"))
        zed.received.clear()
        await zed.prompt(session, "/call tools.count {}")

    assert ("STATE_LOST" in first, "STATE_LOST" in str(zed.updates(session, "tool_call_update"))) == (
        True,
        False,
    )
