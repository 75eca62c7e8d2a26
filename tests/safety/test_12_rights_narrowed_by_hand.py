"""Attack 12, at the gateway: an open session goes on with rights that a person has taken away in a file."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.host import config_watch
from holdfast.host.config_watch import ConfigWatch
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.gateway.running import Client, RunningGateway, running_gateway
from tests.gateway.test_config_changes import ENTRY, check_often, write_servers

__all__ = ["check_often"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-04")]


@asynccontextmanager
async def session_in_a_direct_workspace(folder: Path) -> AsyncIterator[tuple[RunningGateway, Client]]:
    (folder / "config.toml").write_text("")
    (folder / "project").mkdir()
    write_servers(folder, {"counter": ENTRY, "other": ENTRY})
    async with (
        asyncio.timeout(60),
        running_gateway(folder, {"HOLDFAST_CONFIG": str(folder / "config.toml")}, servers={}) as running,
    ):
        running.host.registry.add(folder / "project", trust=Trust.DIRECT)
        async with Client(running.url, running.token()) as client:
            yield running, client


async def is_refused(client: Client) -> bool:
    return "count" not in await client.call("counter__add")


def lower_trust(running: RunningGateway) -> None:
    """Change the file itself, as many editors do, without replacing it."""
    file = running.host.registry.file_of("project")
    file.write_text(file.read_text().replace('"direct"', '"sandboxed"'))


def count_checks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Returns a function that waits until the configuration was compared three times more."""
    checks, version = 0, ConfigWatch.version

    async def counted(watch: ConfigWatch, cwd: str | Path) -> Any:
        nonlocal checks
        found = await version(watch, cwd)
        checks += 1
        return found

    async def wait() -> None:
        until = checks + 3
        while checks < until:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(ConfigWatch, "version", counted)
    return wait


@pytest.mark.slow
async def test_a_workspace_file_that_is_edited_in_place_lowers_the_trust_of_open_sessions(tmp_path: Path):
    async with session_in_a_direct_workspace(tmp_path) as (running, client):
        at_first = await is_refused(client)
        lower_trust(running)
        while not await is_refused(client):
            await asyncio.sleep(0.01)

    assert not at_first


async def test_control_if_only_the_folder_is_watched_the_session_stays_direct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def folder_only(files: Iterable[Path], folder: Path) -> tuple[object, ...]:
        return config_watch._file_versions((*files, folder))  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(config_watch, "_versions_with", folder_only)
    wait_for_checks = count_checks(monkeypatch)
    async with session_in_a_direct_workspace(tmp_path) as (running, client):
        lower_trust(running)
        await wait_for_checks()
        refused = await is_refused(client)

    assert not refused


@pytest.mark.slow
async def test_a_server_that_is_removed_while_the_settings_are_invalid_is_ended(tmp_path: Path):
    async with session_in_a_direct_workspace(tmp_path) as (_, client):
        at_first = await is_refused(client)
        (tmp_path / "config.toml").write_text("[permission\n")
        write_servers(tmp_path, {"other": ENTRY})
        while not await is_refused(client):
            await asyncio.sleep(0.01)

    assert not at_first


@pytest.mark.slow
async def test_control_if_nothing_is_applied_without_the_settings_the_server_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    update = ConfigWatch._update  # pyright: ignore[reportPrivateUsage]

    async def with_rules(watch: ConfigWatch, session: Session, *, screen_again: bool) -> None:
        watch._read_rules()  # pyright: ignore[reportPrivateUsage]
        await update(watch, session, screen_again=screen_again)

    monkeypatch.setattr(ConfigWatch, "_update", with_rules)
    wait_for_checks = count_checks(monkeypatch)
    async with session_in_a_direct_workspace(tmp_path) as (_, client):
        (tmp_path / "config.toml").write_text("[permission\n")
        write_servers(tmp_path, {"other": ENTRY})
        await wait_for_checks()
        refused = await is_refused(client)

    assert not refused
