"""Attack 2: a project's or client's config sets a variable that loads code into the server, or finds another one."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.host import Opening
from holdfast.model.resolution import Stage
from tests.connect.conftest import HostFactory, counter, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


def trap(folder: Path) -> Path:
    """A folder whose `sitecustomize` runs in every Python that looks there, and leaves a mark."""
    mark = folder / "mark"
    (folder / "sitecustomize.py").write_text(f"open({str(mark)!r}, 'w').close()")
    return mark


def brought(folder: Path) -> Any:
    """A client's server that is started with the trap in its path."""
    entry = counter()
    variables = {**entry["env"], "PYTHONPATH": f"{folder}{os.pathsep}{entry['env']['PYTHONPATH']}"}
    return {
        "name": "c",
        "command": sys.executable,
        "args": entry["args"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }


@pytest.mark.promise("CTX-04")
async def test_the_server_is_refused_with_a_reason_and_nothing_is_loaded(
    make_host: HostFactory, tmp_path: Path
):
    mark = trap(tmp_path)
    async with make_host({}) as host:
        session = await host.open(Opening(cwd=tmp_path, servers=(brought(tmp_path),)))
        await session.ready()
        (refusal,) = session.refusals
        await host.close_session(session)

    assert (
        refusal.stage,
        refusal.reason.startswith("env: PYTHONPATH may not come from the client's request:"),
    ) == (
        Stage.VALIDATE,
        True,
    )
    assert not mark.exists()


async def test_control_without_the_check_the_code_is_loaded(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import holdfast.resolve.validate as stage

    def harmless(name: str) -> None:
        return None

    monkeypatch.setattr(stage, "is_loader_variable", harmless)
    mark = trap(tmp_path)
    async with make_host({}) as host:
        session = await host.open(Opening(cwd=tmp_path, servers=(brought(tmp_path),)))
        await session.ready()
        await host.close_session(session)

    assert mark.exists()
