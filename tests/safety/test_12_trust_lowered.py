"""Attack 12: a session uses a server that was started before its trust was lowered."""

from pathlib import Path

import pytest

from tests.connect.conftest import HostFactory, counter_entry, folder, for_sandboxed, make_host
from tests.connect.processes import is_alive

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


@pytest.mark.promise("RES-04")
async def test_next_call_runs_with_the_lower_trust(make_host: HostFactory, folder: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("out of reach")
    async with make_host({"c": for_sandboxed(counter_entry())}) as host, host.session(cwd=folder) as session:
        before = await session.call("c.read", {"path": str(tmp_path / "secret")})
        pid = (await session.call("c.whoami")).data["pid"]
        await session.lower_trust()
        after = await session.call("c.read", {"path": str(tmp_path / "secret")})

    assert (before.text, after.ok, is_alive(pid)) == ("out of reach", False, False)
    assert "out of reach" not in after.text


async def test_control_link_that_stays_open_keeps_the_old_trust(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    (tmp_path / "secret").write_text("out of reach")
    async with make_host({"c": for_sandboxed(counter_entry())}) as host, host.session(cwd=folder) as session:
        _, connection = await host.links.connect(session.scope, session.server("c"))
        kept = host.links._by_scope.pop(session.scope)  # so that lower_trust does not close it
        await session.lower_trust()
        from holdfast.wire.frame import Raw

        result = await connection.call("read", Raw(b'{"path": "%b"}' % str(tmp_path / "secret").encode()))
        for link in kept.values():
            await link.close()

    assert b"out of reach" in bytes(result.content[0])
