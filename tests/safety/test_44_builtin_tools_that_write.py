"""Attack 44: a sandboxed session makes a built-in tool write beside a program that runs with the user's rights."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.builtin.files.open_path import open_path
from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.builtin.servers import AGENT_SERVERS, _stage_tools
from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.connect.scope import Scope
from holdfast.connect.server_requests import ROOTS, ServerRequests
from holdfast.host.open_options import OpenOptions
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.json import JsonObject
from holdfast.model.meta_keys import READ_ONLY_KEY
from holdfast.model.permission import Mode
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.unconfined_paths import UnconfinedPaths
from holdfast.session.session import Session
from holdfast.wire.messages import Raw
from tests.connect.conftest import HostFactory, make_host
from tests.stage.site import Site, run_site

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

WRITERS = {"files.write", "files.edit", "shell.run", "stage.downloads"}
"""The built-in tools that create or change files at a path that the caller chooses."""
OTHERS = {
    *("agents.delegate", "files.find", "files.list", "files.read", "plan.update"),
    *("tasks.task_add", "tasks.task_done", "tasks.task_list", "tasks.task_show", "tasks.task_start"),
    *("tasks.task_update", "tasks.workspace_list"),
    *("team.create_session", "team.list_workspace_sessions", "team.read_inbox", "team.search_sessions"),
    "team.send_message",
    *(f"stage.{name}" for name in ("attach", "click", "close", "console", "dialogs", "drag", "elements")),
    *(f"stage.{name}" for name in ("evaluate", "expect", "fill", "find", "goto", "hover", "open", "press")),
    *(f"stage.{name}" for name in ("read", "requests", "screenshot", "scroll", "snapshot", "stages", "tab")),
    *(f"stage.{name}" for name in ("tabs", "type", "upload", "wait")),
}
CALLS = {
    "files.write": {"path": "subprocess.py", "text": "evil"},
    "files.edit": {"path": "server.py", "old": "print", "new": "evil"},
    "shell.run": {"command": "echo evil > socket.py"},
    "stage.downloads": {"number": 1, "save_as": "json.py"},
}


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
@pytest.mark.promise("RES-07", "STG-14")
async def test_no_builtin_tool_writes_beside_a_program_of_the_user(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "server.py").write_text("print()\n")
    before = _contents(project)
    own = {"command": sys.executable, "args": [str(project / "server.py")]}
    variables = {
        "HOLDFAST_STAGE_ENABLED": "true",
        "HOLDFAST_STAGE_HOSTS": "*",
        "HOLDFAST_SERVERS_REACHABLE": "localhost",
    }
    with run_site() as site:
        async with make_host({}, **variables) as host:
            host.registry.add(project, trust=Trust.SANDBOXED)
            options = OpenOptions(cwd=project, extra_builtins=AGENT_SERVERS, mode=Mode.AUTO)
            session = await host.open(options)
            await session.wait_ready()
            names = {tool.name for tool in await session.tools()}
            await _download(session, site)
            # The user adds the server while the session is open.
            (tmp_path / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": own}}))

            attacks = {name: await session.call(name, CALLS[name]) for name in WRITERS}
            after = _contents(project)
            with monkeypatch.context() as unprotected:
                unprotected.setattr(UnconfinedPaths, "read_only_in", _nothing)
                unprotected.setattr(UnconfinedPaths, "programs_in", _nothing)
                controls = {name: await session.call(name, CALLS[name]) for name in WRITERS}
            await session.close()

    builtin = {*names, *(f"stage.{tool.name}" for tool in _stage_tools())}
    assert builtin == WRITERS | OTHERS, "a new built-in tool: does it write files? Then it needs a call here"
    assert after == before
    assert {name: attacks[name].code for name in WRITERS - {"shell.run"}} == dict.fromkeys(
        WRITERS - {"shell.run"}, "DENIED"
    )
    assert "Read-only file system" in attacks["shell.run"].text
    assert all(result.ok for result in controls.values()), controls
    assert sorted(_contents(project)) == ["json.py", "server.py", "socket.py", "subprocess.py"]


OTHER_NAMES = (
    *(".GIT/hooks/pre-commit", ".g\u200cit/hooks/pre-commit", ".git\ufe0f/config", ".gi\u034ft/config"),
    *(".git./hooks/pre-commit", ".git /config", ".git. ./config", ".git::$INDEX_ALLOCATION/config"),
    *("sub/.ENVRC\u00ad", ".vscode\u2060/tasks.json", "ENVRC~1"),
)
"""Spellings that some file systems treat as a guarded name."""


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("trust", [Trust.SANDBOXED, Trust.DIRECT], ids=["attack", "control"])
async def test_no_spelling_of_a_guarded_name_is_written(make_host: HostFactory, tmp_path: Path, trust: Trust):
    project = tmp_path / "project"
    project.mkdir()
    (project / ".envrc").touch()
    # On FAT and NTFS, this is a second name of `.envrc`.
    (project / "ENVRC~1").hardlink_to(project / ".envrc")
    others = (".gitattributes", "git~1", "notes: .git", "a.git.", "~/.envrc.md")
    async with (
        make_host({}) as host,
        host.session(cwd=project, trust=trust.value, permission="auto") as session,
    ):
        calls = {
            name: await session.call("files.write", {"path": name, "text": "evil"})
            for name in (*OTHER_NAMES, *others)
        }

    codes = dict.fromkeys(OTHER_NAMES, "" if trust is Trust.DIRECT else "DENIED")
    assert {name: result.code for name, result in calls.items()} == {**codes, **dict.fromkeys(others, "")}


@pytest.mark.promise("RES-07")
def test_another_name_of_a_read_only_file_is_read_only_too(tmp_path: Path):
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "SETTINGS.JSON").hardlink_to(tmp_path / "settings.json")  # as on a file system without case
    roots = Roots.of([str(tmp_path)], PathSet(), find_read_only=lambda: [str(tmp_path / "settings.json")])

    with (
        pytest.raises(HoldfastError, match="run from it outside the sandbox"),
        open_path(roots, "SETTINGS.JSON", for_writing=True),
    ):
        pass
    with open_path(replace(roots, find_read_only=None), "SETTINGS.JSON", for_writing=True) as control:
        assert control.name == "SETTINGS.JSON"


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize("is_sandboxed", [True, False], ids=["attack", "control"])
async def test_the_client_of_a_sandboxed_session_does_not_choose_the_folders_of_the_browser(
    tmp_path: Path, is_sandboxed: bool
):
    trust = Trust.SANDBOXED if is_sandboxed else Trust.DIRECT
    context = SessionContext(session_id=new_session_id(), trust_level=trust, cwd=str(tmp_path))
    scope = Scope(context)
    scope.relay = _EvilClient()  # type: ignore[assignment]
    spec = ServerSpec(
        name="stage", source=Source.BUILTIN, transport=Stdio(command="x"), confines_what_it_runs=True
    )
    requests = ServerRequests(spec, scope)

    answer = await requests.answer(ROOTS, Raw(b"{}"))

    if is_sandboxed:
        assert answer == {
            "roots": [{"uri": tmp_path.as_uri()}],
            "_meta": {READ_ONLY_KEY: [str(tmp_path)]},
        }
        assert requests.allowed_capabilities({}) == {"roots": {}}
    else:
        assert bytes(answer) == b'{"roots":[{"uri":"file:///etc"}]}'


@pytest.mark.promise("STG-14")
def test_downloads_are_not_saved_while_it_is_unknown_what_is_read_only(tmp_path: Path):
    download = tmp_path / "download"
    download.write_text("content")
    roots = (str(tmp_path),)

    with pytest.raises(HoldfastError, match="did not say"):
        SessionFiles(roots=roots, read_only=None).copy_out(tmp_path, "download", "new")
    SessionFiles(roots=roots).copy_out(tmp_path, "download", "control")

    assert sorted(_contents(tmp_path)) == ["control", "download"]


class _EvilClient:
    """A client of the gateway that lists a folder of the machine as its root."""

    def __init__(self) -> None:
        self.capabilities: JsonObject = {"roots": {}}
        self.is_limited_to_folder = False

    async def ask(self, spec: ServerSpec, method: str, params: Raw) -> Raw:
        return Raw(b'{"roots":[{"uri":"file:///etc"}]}')


async def _download(session: Session, site: Site) -> None:
    site.answers["/file"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"evil")
    site.page(
        "/", "<a href=/file download id=a>x</a><script>onload = () => setTimeout(() => a.click())</script>"
    )
    await session.call("stage.open", {"url": f"{site.other_url}/"})
    async with asyncio.timeout(30):
        while "completed" not in (await session.call("stage.downloads")).text:
            await asyncio.sleep(0.05)


def _nothing(paths: UnconfinedPaths, roots: Sequence[str]) -> tuple[str, ...]:
    return ()


def _contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
