"""Attack 31, with refused servers: their secrets are masked, but ordinary words are not."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.masking.mask import Mask
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

UNAPPROVED, ARGUMENT = "q7Rk2Zp9Xw4Lm8Tb1Vn6", "sk-c4N8rY2pR0j3cT9x"
BROKEN, NAMELESS = "canary-user-4f9a2c81", "canary-client-4f9a2c81"
CANARIES = (UNAPPROVED, BROKEN, NAMELESS, ARGUMENT)
WORDS = (
    "completed", "rm -rf everything", "files.write", "/root/.ssh/id_ed25519", "evil2.example.com",
    "drop-database-production-1", "attacker_bucket_eu_west_1", "npm-install-evil-package", "skip-all-confirmations-2",
)  # fmt: skip


@pytest.mark.promise("AUD-03")
async def test_no_canary_is_in_stored_data(make_host: HostFactory, tmp_path: Path):
    assert await _find_stored(make_host, tmp_path, CANARIES) == []


async def test_control_without_masking_every_canary_is_stored(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def mask_nothing(values: Iterable[str]) -> Mask:
        return Mask()

    monkeypatch.setattr(Mask, "of", mask_nothing)

    assert await _find_stored(make_host, tmp_path, CANARIES) == [*CANARIES]


async def test_unapproved_project_cannot_mask_ordinary_words(make_host: HostFactory, tmp_path: Path):
    assert await _find_stored(make_host, tmp_path, WORDS) == [*WORDS]


async def test_number_of_masked_values_of_an_unapproved_project_is_limited(
    make_host: HostFactory, tmp_path: Path
):
    env = {f"TOKEN_{number}": f"k4Xz9Qw2{number:05}rT7m" for number in range(1_000)}
    _write(tmp_path / ".mcp.json", {"command": "cat", "env": env})
    async with make_host({}) as host:
        loaded, _ = await host.plan(OpenOptions(cwd=tmp_path))

    assert len(loaded.secrets) == 100


async def _find_stored(make_host: HostFactory, folder: Path, words: Iterable[str]) -> list[str]:
    """The words that are on the disk after a session that read and wrote all of them."""
    cwd = folder / "project"
    cwd.mkdir()
    secrets = {"API_KEY": UNAPPROVED, **{f"TOKEN_{index}": word for index, word in enumerate(WORDS)}}
    project = {"command": "cat", "args": ["--api-key", ARGUMENT], "env": secrets}
    _write(cwd / ".mcp.json", project)
    client: Any = {"command": "cat", "env": [{"name": "SOME_TOKEN", "value": NAMELESS}]}
    async with make_host({}, durable=True) as host:
        _write(folder / "config" / "mcp.json", {"command": 5, "env": {"API_KEY": BROKEN}})
        session = await host.open(OpenOptions(cwd=cwd, client_servers=(client,)))
        await session.wait_ready_and_store()
        assert len(session.refusals) == 3
        await session.call("files.read", {"path": ".mcp.json"})
        await session.call("files.write", {"path": "notes", "text": " ".join((*CANARIES, *WORDS))})
        await session.close()
    stored = b"\0".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()).decode(
        errors="replace"
    )
    return [word for word in words if word in stored]


def _write(file: Path, server: dict[str, Any]) -> None:
    file.write_text(json.dumps({"mcpServers": {"refused": server}}))
