"""What the options of opening a session do."""

import sys
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.allowlist import Allowlist
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust
from holdfast.resolve.select import Restriction
from holdfast.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


def allow(*names: str) -> Allowlist:
    return Allowlist(frozenset(names))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with the servers `a`, `b` and `c`, and no config of this machine."""
    (tmp_path / "project").mkdir()
    (tmp_path / "config.toml").touch()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
    }
    servers = {name: {"command": sys.executable} for name in "abc"}
    return Host(
        settings=settings.load(tmp_path / "config.toml", environ), store=MemoryStore(), servers=servers
    )


@pytest.mark.promise("RES-12")
async def test_restriction_of_an_agent_narrows_what_the_workspace_allows(host: Host, tmp_path: Path):
    project = tmp_path / "project"
    agent = Restriction(imposed_by="the agent reviewer", servers=allow("b", "c"), tool_names=allow("read"))
    async with host:
        host.registry.add(project, trust=Trust.DIRECT, servers=allow("a", "b"))
        _, resolution = await host.plan(OpenOptions(cwd=project, restrictions=(agent,)))

    assert [(server.name, server.tools) for server in resolution.servers] == [("b", allow("read"))]
    assert Refusal(
        server="a", stage=Stage.SELECT, reason="It is not among the servers that the agent reviewer allows."
    ) in (resolution.refusals)


async def test_only_server_leaves_out_all_other_servers(host: Host, tmp_path: Path):
    async with host:
        _, resolution = await host.plan(OpenOptions(cwd=tmp_path / "project", only_server="b"))

    assert [server.name for server in resolution.servers] == ["b"]
    assert resolution.refusals == ()
