"""Which servers Holdfast brings along, to which sessions."""

import os
import sys
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.host import Host, Opening
from holdfast.model.json import Json
from holdfast.model.resolution import Stage
from holdfast.model.trust import Trust
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
    takers: dict[str, Json] = {name: {"command": sys.executable} for name in ("files", "tasks")}
    return Host(settings=loaded, store=MemoryStore(), servers=takers)


@pytest.mark.promise("RES-08")
async def test_their_names_are_theirs_also_where_they_are_not_at_hand(host: Host, tmp_path: Path):
    async with host:
        _, resolution = await host.plan(Opening(cwd=tmp_path / "project"))

    assert [server.name for server in resolution.servers] == ["files"]
    assert {(refusal.server, refusal.stage) for refusal in resolution.refusals} == {
        ("files", Stage.VALIDATE),
        ("tasks", Stage.VALIDATE),
    }


async def test_tasks_are_kept_for_direct_sessions_of_a_workspace(host: Host, tmp_path: Path):
    async with host:
        host.registry.add(tmp_path / "project", trust=Trust.DIRECT)
        async with (
            host.session(cwd=tmp_path / "project") as one,
            host.session(cwd=tmp_path / "project") as other,
        ):
            added = await one.call("tasks.task_add", {"title": "water the tomatoes"})
            listed = await other.call("tasks.task_list")
        async with host.session(cwd=tmp_path / "project", trust=Trust.SANDBOXED) as sandboxed:
            names = sandboxed.up

    assert added.data["created_by"] == one.context.session_id, "it is shared, and knows who calls"
    assert [task["title"] for task in listed.data["items"]] == ["water the tomatoes"]
    assert names == ("files",)


async def test_the_folder_it_is_started_in_lends_a_builtin_no_code(host: Host, tmp_path: Path):
    project = tmp_path / "project"
    for module in ("click.py", "holdfast.py", "msgspec.py"):
        (project / module).write_text(f"open({str(project / 'taken')!r}, 'w')\n")
    async with host:
        host.registry.add(project, trust=Trust.DIRECT)
        async with host.session(cwd=project) as session:
            assert (await session.call("tasks.task_list")).ok

    assert "taken" not in os.listdir(project)
