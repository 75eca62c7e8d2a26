"""Which sessions get the built-in servers."""

import sys
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.builtin.agents.tools import Delegation, agents_toolbox
from holdfast.builtin.call_facts import CallFacts
from holdfast.builtin.servers import builtin_servers
from holdfast.builtin.shell.tools import ShellDeps, shell_toolbox
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.process import Confinement
from holdfast.model.resolution import Stage
from holdfast.model.trust import Trust
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").touch()
    (tmp_path / "project").mkdir()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "home" / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "home" / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
    }
    loaded = settings.load(tmp_path / "home" / "config.toml", environ)
    same_names = {name: {"command": sys.executable} for name in ("files", "tasks")}
    return Host(settings=loaded, store=MemoryStore(), servers=same_names)


@pytest.mark.promise("RES-08")
async def test_names_of_built_in_servers_are_reserved_even_if_the_session_does_not_get_them(
    host: Host, tmp_path: Path
):
    async with host:
        _, resolution = await host.plan(OpenOptions(cwd=tmp_path / "project"))

    assert [server.name for server in resolution.servers] == ["files"]
    assert {(refusal.server, refusal.stage) for refusal in resolution.refusals} == {
        ("files", Stage.VALIDATE),
        ("tasks", Stage.VALIDATE),
    }


async def test_sessions_in_a_workspace_share_its_tasks_and_sandboxed_ones_see_no_others(
    host: Host, tmp_path: Path
):
    async with host:
        (tmp_path / "other").mkdir()
        host.registry.add(tmp_path / "project", trust=Trust.DIRECT)
        host.registry.add(tmp_path / "other", trust=Trust.DIRECT)
        async with (
            host.session(cwd=tmp_path / "project") as one,
            host.session(cwd=tmp_path / "project") as other,
        ):
            added = await one.call("tasks.task_add", {"title": "water the tomatoes"})
            listed = await other.call("tasks.task_list")
        async with host.session(cwd=tmp_path / "project", trust=Trust.SANDBOXED) as sandboxed:
            shown = await sandboxed.call("tasks.task_show", {"id": added.data["id"]})
            denied = await sandboxed.call("tasks.task_list", {"workspace": "other"})
        async with host.session(cwd=tmp_path) as outside:
            names = outside.available

    assert (added.data["id"], added.data["created_by"]) == ("project-1", one.context.session_id)
    assert [task["title"] for task in listed.data["items"]] == ["water the tomatoes"]
    assert (shown.data["title"], denied.data["code"]) == ("water the tomatoes", "WORKSPACE_DENIED")
    assert names == ("files",), "no workspace, no tasks"


@pytest.mark.parametrize("server", ["agents", "shell"])
def test_a_tool_that_limits_its_own_time_may_run_as_long_as_its_server_entry_allows(
    server: str, tmp_path: Path
):
    (tmp_path / "config.toml").touch()
    loaded = settings.load(tmp_path / "config.toml", {})
    context = SessionContext(session_id=SessionId("sess_1"), trust_level=Trust.DIRECT, cwd=str(tmp_path))
    boxes = {
        "agents": agents_toolbox(context, _delegate),
        "shell": shell_toolbox(context, None, _shell_deps()),
    }
    entries = {builtin.spec.name: builtin.spec for builtin in builtin_servers(loaded)}

    assert boxes[server].deadline == entries[server].call_seconds


async def _delegate(session_id: SessionId, facts: CallFacts, delegation: Delegation) -> str:
    return ""


def _shell_deps() -> ShellDeps:
    async def confine(context: SessionContext) -> Confinement:
        return Confinement()

    return ShellDeps(
        keeper=Keeper(None),
        confined_folders=ConfinedFolders(),
        confine=confine,
        direct_env={},
        confined_env={},
    )
