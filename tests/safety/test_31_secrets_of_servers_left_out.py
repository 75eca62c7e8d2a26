"""Attack 31, by servers that a session does not get: their secrets are hidden all the same, and nobody's words are."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.host import Opening
from holdfast.model.mask import Mask
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

UNAPPROVED, BROKEN, NAMELESS, ARGUMENT = (
    f"canary-{where}-4f9a2c81" for where in ("project", "user", "client", "argument")
)
CANARIES = (UNAPPROVED, BROKEN, NAMELESS, ARGUMENT)
WORDS = ("completed", "rm -rf everything", "files.write", "/root/.ssh/id_ed25519", "evil2.example.com")


@pytest.mark.promise("AUD-03")
async def test_none_is_in_what_is_kept(make_host: HostFactory, tmp_path: Path):
    assert await _kept(make_host, tmp_path, CANARIES) == []


async def test_control_without_a_mask_all_of_them_are(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def nothing(values: Iterable[str]) -> Mask:
        return Mask()

    monkeypatch.setattr(Mask, "of", nothing)

    assert await _kept(make_host, tmp_path, CANARIES) == [*CANARIES]


async def test_a_project_that_nobody_approved_hides_no_words(make_host: HostFactory, tmp_path: Path):
    assert await _kept(make_host, tmp_path, WORDS) == [*WORDS]


async def test_a_project_that_nobody_approved_slows_nobody_down_by_what_it_hides(
    make_host: HostFactory, tmp_path: Path
):
    env = {f"TOKEN_{number}": f"canary-{number:05}-4f9a2c81" for number in range(20_000)}
    _write(tmp_path / ".mcp.json", {"command": "cat", "env": env})
    async with make_host({}) as host:
        loaded, _ = await host.plan(Opening(cwd=tmp_path))

    assert len(loaded.secrets) == 100


async def _kept(make_host: HostFactory, folder: Path, words: Iterable[str]) -> list[str]:
    """Which of these are on the disk after a session that met all of them."""
    cwd = folder / "project"
    cwd.mkdir()
    secrets = {"API_KEY": UNAPPROVED, **{f"TOKEN_{place}": word for place, word in enumerate(WORDS)}}
    project = {"command": "cat", "args": ["--api-key", ARGUMENT], "env": secrets}
    _write(cwd / ".mcp.json", project)
    client: Any = {"command": "cat", "env": [{"name": "SOME_TOKEN", "value": NAMELESS}]}
    async with make_host({}, durable=True) as host:
        _write(folder / "own" / "mcp.json", {"command": 5, "env": {"API_KEY": BROKEN}})
        session = await host.open(Opening(cwd=cwd, servers=(client,)))
        await session.settle()
        assert len(session.refusals) == 3
        await session.call("files.read", {"path": ".mcp.json"})
        await session.call("files.write", {"path": "said", "text": " ".join((*CANARIES, *WORDS))})
        await host.close_session(session)
    kept = b"\0".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()).decode(
        errors="replace"
    )
    return [word for word in words if word in kept]


def _write(file: Path, server: dict[str, Any]) -> None:
    file.write_text(json.dumps({"mcpServers": {"left-out": server}}))
