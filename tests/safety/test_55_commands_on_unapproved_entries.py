"""Attack 55: commands beside the session use the entries of a project that is not approved."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import settings as settings_module
from holdfast.cli.app import app
from holdfast.connect.http.login import log_in
from holdfast.model.server import Source
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.load import load_file
from holdfast.resolve.validate import validate

SECRET = "canary-4f9a2c81-7c1e"
COMMANDS = [
    ["servers", "list"],
    ["servers", "explain", "web", "--json"],
    ["servers", "explain", "local", "--json"],
    ["servers", "login", "web", "--no-browser", "--seconds", "5"],
    ["tools", "web", "--json"],
    ["call", "web.tool"],
    ["call", "local.tool", "--json"],
    ["chat"],
    ["sessions", "list", "--json"],
    ["sessions", "search", "canary"],
]


class Listener:
    """A server that notes whether a client connects."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def received(self) -> bytes | None:
        """What the first client sent; None if there was none."""
        try:
            client, _ = self._socket.accept()
        except BlockingIOError:
            return None
        with client:
            client.settimeout(5)
            return client.recv(65536)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.close()


@pytest.fixture
def project(tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that wants the variable SOME_VALUE, in every place of an entry."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "config.toml").touch()
    started = str(tmp_path / "started-${SOME_VALUE}")
    web = {"url": f"http://127.0.0.1:{listener.port}/${{SOME_VALUE}}", "headers": {"X": "${SOME_VALUE}"}}
    local = {"command": "/usr/bin/touch", "args": [started, "${SOME_VALUE}"], "env": {"A": "${SOME_VALUE}"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"web": web, "local": local}}))
    monkeypatch.chdir(folder)
    for name, value in {
        "HOLDFAST_CONFIG": tmp_path / "config.toml",
        "HOLDFAST_DATA_DIR": tmp_path / "data",
        "HOLDFAST_SERVERS_USER_FILE": tmp_path / "mcp.json",
        "HOLDFAST_SERVERS_HOST_FILE": tmp_path / "host.json",
        "SOME_VALUE": SECRET,
    }.items():
        monkeypatch.setenv(name, str(value))
    return folder


@pytest.mark.promise("RES-15")
def test_no_command_shows_or_sends_a_variable_for_an_unapproved_entry(
    project: Path, listener: Listener, tmp_path: Path
):
    shown = [(command, _run(*command)) for command in COMMANDS]

    assert [command for command, output in shown if SECRET in output] == []
    assert listener.received() is None
    assert [*tmp_path.glob("started*")] == []
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert SECRET.encode() not in stored


def test_login_says_how_to_approve(project: Path):
    assert "To review it, run: holdfast servers approve" in _run("servers", "login", "web", "--no-browser")


def test_approving_shows_the_reference_and_not_the_value(project: Path):
    shown = _run("servers", "approve", "local", "--yes")

    assert "uses:      SOME_VALUE from your environment" in shown
    assert SECRET not in shown


def test_import_shows_what_a_server_runs_and_expands_nothing(project: Path, tmp_path: Path):
    shown = _run("servers", "import", "--from", "cursor", "--file", str(project / ".mcp.json"), "--dry-run")

    assert "/usr/bin/touch" in shown
    assert SECRET not in shown
    assert not (tmp_path / "mcp.json").exists()


@pytest.mark.promise("RES-15")
@pytest.mark.parametrize("is_link", [True, False])
def test_projects_file_that_is_a_link_to_a_file_of_the_user_is_not_read(
    project: Path, tmp_path: Path, is_link: bool
):
    others = tmp_path / "other-client.json"
    others.write_text(json.dumps({"mcpServers": {"web": {"command": "x", "env": {"KEY": SECRET}}}}))
    (project / ".mcp.json").unlink()
    if is_link:
        (project / ".mcp.json").symlink_to(others)
    else:  # the control
        others.rename(project / ".mcp.json")

    listed, explained, reviewed = (
        _run("servers", *words) for words in (["list"], ["explain", "web"], ["approve", "--yes"])
    )

    assert [SECRET in shown for shown in (explained, reviewed)] == [not is_link] * 2
    assert ("It is not read: a link." in " ".join(listed.split())) is is_link


def test_control_without_admission_a_login_sends_the_secret(project: Path, listener: Listener):
    loaded = load_file(Source.PROJECT, project / ".mcp.json")
    resolution = expand_servers(validate(loaded), {"SOME_VALUE": SECRET})
    (web,) = (server for server in resolution.servers if server.name == "web")

    async def attack() -> bytes | None:
        folder = settings_module.load().data_dir / "oauth"
        login = asyncio.create_task(
            log_in(web, folder=folder, on_login_page=lambda url: None, reachable=(), seconds=10)
        )
        while (received := await asyncio.to_thread(listener.received)) is None and not login.done():
            await asyncio.sleep(0.01)
        login.cancel()
        await asyncio.gather(login, return_exceptions=True)
        return received

    assert SECRET.encode() in (asyncio.run(attack()) or b"")


def _run(*words: str) -> str:
    """What the command prints; an error is printed, too."""
    done = CliRunner().invoke(app, words, input="")
    return f"{done.output}{done.exception or ''}"
