"""Attack 38: an entry that is not approved refers to the host's environment, to get a secret into a message."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.resolution import Stage
from holdfast.model.server import Source
from holdfast.resolve import resolve as resolve_module
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.load import ConfigFile, load
from holdfast.resolve.validate import validate
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

SECRET = "canary-" + "4f9a2c81" * 4
ENTRIES: list[dict[str, Any]] = [
    {"url": "ftp://" + "x" * 55 + "${SOME_VALUE}"},  # an old message quoted 100 characters of the URL
    {"url": "${SOME_VALUE}"},
    {"url": "http://${SOME_VALUE}.example.org/"},
    {"url": "http://127.0.0.1/${SOME_VALUE}", "headers": {"X": "${SOME_VALUE}\n"}},
    {"command": "${SOME_VALUE}", "args": ["${SOME_VALUE}"], "env": {"A": "${SOME_VALUE}\0"}},
    {"command": "x", "readable": ["${SOME_VALUE}"], "network": ["${SOME_VALUE}"]},
    {"command": "x", "type": "${SOME_VALUE}"},
]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the host whose name is not secret: it is not masked."""
    monkeypatch.setenv("SOME_VALUE", SECRET)


@pytest.mark.promise("RES-15")
async def test_no_value_of_the_environment_is_in_a_refusal_or_in_the_store(
    make_host: HostFactory, tmp_path: Path
):
    project = _project(tmp_path)
    async with make_host({}, durable=True) as host:
        session = await host.open(OpenOptions(cwd=project))
        await session.wait_ready_and_store()
        refusals, warnings = session.refusals, session.warnings
        await session.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())

    assert len(refusals) == len(ENTRIES)
    assert SECRET[:8] not in repr((refusals, warnings))
    assert SECRET[:8].encode() not in stored


@pytest.mark.promise("RES-15")
async def test_nothing_is_expanded_before_approval(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    expanded: list[str] = []

    def note(resolution: Any, environ: Any) -> Any:
        expanded.extend(server.name for server in resolution.servers)
        return expand_servers(resolution, environ)

    monkeypatch.setattr(resolve_module, "expand_servers", note)
    async with make_host({"mine": {"command": "x"}}) as host:
        await host.plan(OpenOptions(cwd=_project(tmp_path)))

    assert expanded == ["files", "mine"]


async def test_refusal_of_an_approved_entry_names_its_variables_and_not_their_values(
    make_host: HostFactory, tmp_path: Path
):
    project = _project(tmp_path)
    async with make_host({}) as host:
        loaded, _ = await host.plan(OpenOptions(cwd=project))
        for entry in loaded.entries:
            await host.approvals.approve_server(entry, by="me")
        _, resolution = await host.plan(OpenOptions(cwd=project))

    reasons = {refusal.server: refusal.reason for refusal in resolution.refusals}
    assert reasons["s0"] == (
        '"url" is not an http or https URL. Write one such as https://example.org/mcp. Check the variables that it refers to: SOME_VALUE.'
    )
    assert SECRET[:8] not in repr(reasons)


async def test_control_expansion_before_admission_reads_the_environment(tmp_path: Path):
    text = (_project(tmp_path) / ".mcp.json").read_bytes()
    loaded = load([ConfigFile(source=Source.PROJECT, path="/p/.mcp.json", content=text)])

    resolution = expand_servers(validate(loaded), {"SOME_VALUE": SECRET})
    quoted = [f"{server.transport!r}"[:100] for server in resolution.servers]  # as the old messages did

    assert any(SECRET[:8] in text for text in quoted)
    assert not any(refusal.stage is Stage.ADMIT for refusal in resolution.refusals)


def _project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    servers = {f"s{number}": entry for number, entry in enumerate(ENTRIES)}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return project
