"""Attack 31, through a live session: servers say their secrets in answers, errors and on standard error."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast import telemetry
from holdfast.model.mask import Mask
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

KEY, FROM_HOST, HEADER = "canary-env-4f9a2c81", "canary/argv?7d1e", "canary.header.91ab7c"
CANARIES = (KEY, FROM_HOST, HEADER)
TOOLS = ("say", "fail", "refuse", "garble", "die", "say")


def blabber(how: str) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(Path(__file__).with_name("blabber.py")), "${MY_PASSWORD}"],
        "env": {"SERVICE_API_KEY": KEY, "TESTS_BLABBER": how},
    }


SERVERS = {
    "lives": blabber("lives"),
    "dies": blabber("dies"),
    "remote": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {HEADER}"}},
}


@pytest.mark.promise("AUD-03")
async def test_none_is_in_what_is_kept_logged_or_told_as_an_error(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert await _seen(make_host, tmp_path, monkeypatch) == []


async def test_control_without_a_mask_they_are_everywhere(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def nothing(values: Iterable[str]) -> Mask:
        return Mask()

    monkeypatch.setattr(Mask, "of", nothing)

    seen = await _seen(make_host, tmp_path, monkeypatch)

    assert {place for place, _ in seen} >= {"files", "log", "errors"}
    assert {canary for _, canary in seen} >= {KEY, FROM_HOST}


async def _seen(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """Where each canary was found after a session in which everything said it."""
    monkeypatch.setenv("MY_PASSWORD", FROM_HOST)
    errors: list[str] = []
    stream = io.StringIO()
    telemetry.configure("debug", "json", stream)
    try:
        async with make_host(SERVERS, durable=True) as host, host.session(cwd=folder) as session:
            errors += [refusal.reason for refusal in session.refusals]
            for tool in TOOLS:
                answer = await session.call(
                    f"lives.{tool}", {"note": f"{KEY} {FROM_HOST}", "deep": [{KEY: HEADER}]}
                )
                errors.append(answer.message)
            errors.append((await session.call(f"lives.{KEY}", {"note": FROM_HOST})).code)
    finally:
        telemetry.configure("info", "auto")
    kept = b"\0".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file())
    places = {"files": kept.decode("utf-8", "replace"), "log": stream.getvalue(), "errors": "\n".join(errors)}
    return [(place, canary) for place, text in places.items() for canary in CANARIES if canary in text]
