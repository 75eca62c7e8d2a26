"""Servers that a package runner starts, confined: fetched with the registry and without the session's folders, then run."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.host import package_install, package_record
from holdfast.host.packages import locked, package_to_fetch
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.package_runner import PackageCommand, Runner, parse_package_command
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, folder, make_host
from tests.sandbox.conftest import bwrap

__all__ = ["bwrap", "folder", "make_host"]
pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "journeys" / "strangers_server.py"
INSTALLER = Path(__file__).with_name("stand_in_installer.py")


class Registry:
    """A package registry on loopback, and a stand-in for npm that uses it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = url.removeprefix("http://")
        self.requests: list[str] = []
        self.version = "1.0.0"
        self.script = SERVER.read_text()
        self.look_for: list[str] = []
        self.size = 0
        """How many MiB a package has."""


@contextmanager
def serve_registry() -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append(self.path)
            body = json.dumps(
                {
                    "version": registry.version,
                    "script": registry.script,
                    "look_for": json.dumps(registry.look_for),
                    "size": registry.size,
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = Registry(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def write_stand_ins(folder: Path) -> str:
    """Write `npm`, `npx` and their like into a folder. Return a PATH that begins with it."""
    folder.mkdir()
    for name in ("npm", "bun", "uv", "pipx"):
        (folder / name).write_text(f"#!{os.path.realpath(sys.executable)}\n{INSTALLER.read_text()}")
    for name in ("npx", "bunx", "uvx"):
        (folder / name).write_text(f"#!/bin/sh\necho this is {name} itself >&2\nexit 3\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("PATH", write_stand_ins(tmp_path / "bin"))
    with serve_registry() as found:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", found.url)
        yield found


def variables(registry: Registry, tmp_path: Path) -> dict[str, str]:
    return {
        "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
        "HOLDFAST_SERVERS_REACHABLE": "127.0.0.1",
        "HOLDFAST_SERVERS_REGISTRIES": registry.host,
    }


ENTRY = {"command": "npx", "args": ["-y", "fetched", "serve"], "confined": True}


async def result(session: Session, tool: str, **arguments: str) -> Any:
    return (await session.call(f"c.{tool}", arguments)).data["result"]


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_fetching_sees_no_folder_and_running_sees_a_read_only_package_and_no_registry(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    (folder / "mine.txt").touch()
    authority = tmp_path / "company.pem"
    authority.touch()
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authority))
    registry.look_for = [str(folder / "mine.txt"), "/usr/bin/env", str(authority)]
    async with (
        make_host({"c": ENTRY}, **variables(registry, tmp_path)) as host,
        host.session(cwd=folder) as session,
    ):
        assert [refusal.reason for refusal in session.refusals] == []
        (package,) = (tmp_path / "packages").glob("*/node_modules/fetched")
        written = await result(session, "leave", text="x", path=str(package / "evil.py"))
        reached = await result(session, "reach", url=registry.url)
        own = await result(session, "leave", text="x", path=str(folder / "mine.txt"))

    assert json.loads((package / "seen.json").read_text()) == {
        str(folder / "mine.txt"): False,
        "/usr/bin/env": True,
        str(authority): True,
    }
    assert (written, reached, own) == ("OSError", "URLError", "written")


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_package_is_fetched_once_and_a_direct_server_does_not_use_it(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry
):
    direct = {"command": "npx", "args": ["-y", "fetched"]}
    reasons: dict[str, str] = {}
    async with make_host({"c": ENTRY, "direct": direct}, **variables(registry, tmp_path)) as host:
        for _ in range(2):
            async with host.session(cwd=folder) as session:
                assert session.available == ("files", "c")
                reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    assert registry.requests == ["/fetched@latest"]
    assert "this is npx itself" in reasons["direct"]


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize(
    "words", ["npx -y fetched@1.0.0", "bunx fetched@1.0.0", "uvx fetched@1.0.0", "pipx run fetched==1.0.0"]
)
async def test_every_package_runner_works_confined(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry, words: str
):
    command, *args = words.split()
    entry = {"command": command, "args": args, "confined": True}
    async with (
        make_host({"c": entry}, **variables(registry, tmp_path)) as host,
        host.session(cwd=folder) as session,
    ):
        assert [refusal.reason for refusal in session.refusals] == []
        told = (await session.call("c.told")).data
    (record,) = (json.loads(file.read_text()) for file in (tmp_path / "packages").glob("*.json"))

    assert (told["environment"], record["version"]) == ("sandboxed", "1.0.0")
    assert registry.requests == ["/fetched@1.0.0"]
    compiled = [*(tmp_path / "packages").glob("*/*/**/site-packages/fetched/__pycache__/server.*.pyc")]
    assert len(compiled) == (1 if command in ("uvx", "pipx") else 0), "a read-only package is compiled once"


@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_package_that_was_fetched_before_packages_were_compiled_is_compiled_at_the_next_start(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry
):
    entry = {"command": "uvx", "args": ["fetched@1.0.0"], "confined": True}

    async def start() -> list[Path]:
        async with (
            make_host({"c": entry}, **variables(registry, tmp_path)) as host,
            host.session(cwd=folder) as session,
        ):
            assert (await session.call("c.told")).data["environment"] == "sandboxed"
        return [*(tmp_path / "packages").glob("*/*/**/site-packages/fetched/__pycache__/server.*.pyc")]

    (compiled,) = await start()
    compiled.unlink()
    control = await start()
    (record,) = (tmp_path / "packages").glob("*.json")
    content = json.loads(record.read_text())
    del content["is_compiled"]  # as in the records of earlier versions
    record.write_text(json.dumps(content))

    assert (control, await start()) == ([], [compiled])
    assert registry.requests == ["/fetched@1.0.0"]


@pytest.mark.promise("BOX-08")
@pytest.mark.parametrize("runner", Runner)
def test_package_is_compiled_only_by_an_interpreter_outside_of_it(tmp_path: Path, runner: Runner):
    command = PackageCommand(runner=runner, packages=("tool",), program="tool")
    environment = tmp_path / ("tools/tool" if runner is Runner.UVX else "pipx/venvs/tool")
    python = environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    own = environment / "bin" / "python3"
    own.touch(mode=0o755)
    found: list[str] = []
    for target in (str(own), "/bin/sh", os.path.realpath(sys.executable)):
        python.unlink(missing_ok=True)
        python.symlink_to(target)
        found.append(next(iter(package_install.compile_command(command, str(tmp_path))), ""))

    is_python = runner in (Runner.UVX, Runner.PIPX)
    assert found == ["", "", os.path.realpath(sys.executable) if is_python else ""]


@pytest.mark.promise("BOX-07", "BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_without_a_registry_the_refusal_says_which_setting_to_add(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry
):
    settings = variables(registry, tmp_path) | {"HOLDFAST_SERVERS_REGISTRIES": ""}
    async with make_host({"c": ENTRY}, **settings) as host, host.session(cwd=folder) as session:
        (refusal,) = session.refusals

    assert refusal.reason == (
        f"fetched was not fetched: npx runs confined and tried to reach {registry.host}. To allow that for all packages, "
        f'set servers.registries to ["{registry.host}"] in the settings.'
    )
    assert registry.requests == []


@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_registry_at_a_private_address_needs_the_setting_that_the_refusal_names(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry
):
    settings = variables(registry, tmp_path) | {"HOLDFAST_SERVERS_REACHABLE": ""}
    async with make_host({"c": ENTRY}, **settings) as host, host.session(cwd=folder) as session:
        (refusal,) = session.refusals

    assert refusal.reason == (
        "fetched was not fetched: npx runs confined, and a registry that was granted is refused. "
        f"{registry.host} is at 127.0.0.1, a loopback address. "
        f'To allow it, add it to this list in the settings, under [servers]: reachable = ["{registry.host}"]'
    )


@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
async def test_package_that_is_too_large_is_refused_and_leaves_nothing_usable(
    make_host: HostFactory, folder: Path, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    registry.size = 3
    for module in (package_record, package_install):
        monkeypatch.setattr(module, "MAX_BYTES", 1024**2)
    async with (
        make_host({"c": ENTRY}, **variables(registry, tmp_path)) as host,
        host.session(cwd=folder) as session,
    ):
        (refusal,) = session.refusals

    assert (
        refusal.reason
        == "fetched cannot be used: it is larger than 1048576 bytes, has too many files, or folders that are nested too deeply."
        " Install it yourself, and write the path of its program as the server's command."
    )
    assert [*(tmp_path / "packages").glob("*.json")] == []


async def test_package_that_another_session_fetches_for_too_long_is_refused(tmp_path: Path):
    lock = tmp_path / "package.lock"

    async with locked(lock, package="fetched"):
        with pytest.raises(HoldfastError) as refused:
            await locked(lock, package="fetched", seconds=0).__aenter__()
    async with locked(lock, package="fetched", seconds=0):
        pass

    assert (refused.value.code, refused.value.message) == (
        codes.SPAWN_FAILED,
        "fetched was not fetched: another session has been fetching it for too long. Try again later.",
    )


@pytest.mark.parametrize(
    ("words", "is_fetched"),
    [
        ("npx -y @scope/server-memory", False),
        ("npx -y @scope/server-memory@1 --x", False),
        ("npx --package=@scope/server-memory mcp-server-memory", False),
        ("bunx @scope/server-memory", False),
        ("npx -y @scope/other", True),
        ("npx -y @scope/broken", True),
        ("npx -y @scope/unlinked", True),
        ("uvx server-memory", True),
    ],
)
def test_package_that_the_project_has_in_its_node_modules_is_not_fetched(
    tmp_path: Path, words: str, is_fetched: bool
):
    scope, programs = tmp_path / "node_modules/@scope", tmp_path / "node_modules/.bin"
    manifests = {
        "server-memory": '{"bin": {"mcp-server-memory": "x.js"}}',
        "broken": "{",
        "unlinked": '{"bin": {"../../x": ""}}',
    }
    for name, manifest in manifests.items():
        (scope / name).mkdir(parents=True)
        (scope / name / "package.json").write_text(manifest)
    programs.mkdir()
    (programs / "mcp-server-memory").touch()

    assert (package_to_fetch(words.split(), str(tmp_path)) is not None) == is_fetched


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("npx -y @scope/name@1.2 --x", (Runner.NPX, ("@scope/name@1.2",), "", ("--x",))),
        ("npx --package=a@1 -- b c", (Runner.NPX, ("a@1",), "b", ("c",))),
        ("bunx name", (Runner.BUNX, ("name",), "", ())),
        ("uvx name@1.2 --x", (Runner.UVX, ("name==1.2",), "name", ("--x",))),
        ("uv tool run --from a[x]==1 b", (Runner.UVX, ("a[x]==1",), "b", ())),
        ("uvx --with extra name@latest", (Runner.UVX, ("name", "extra"), "name", ())),
        ("pipx run --spec a b", (Runner.PIPX, ("a",), "b", ())),
        ("npx ./local", None),
        ("npx --registry=https://evil.example name", None),
        ("npx -c touch", None),
        ("npx https://evil.example/x.tgz", None),
        ("uvx --from git+https://evil.example/x p", None),
        ("uvx --index-url https://evil.example p", None),
        ("npx", None),
        ("node npx", None),
    ],
)
def test_command_of_a_package_runner_is_understood_or_left_alone(words: str, found: Any):
    command = parse_package_command(words.split())

    expected = found and PackageCommand(runner=found[0], packages=found[1], program=found[2], args=found[3])
    assert command == expected
