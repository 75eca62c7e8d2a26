"""docs/python.md does what it says: every program on the page runs, and prints what stands below it."""

import asyncio
import json
import os
import re
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.connect.processes import until

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
PROGRAM = re.compile(
    r"```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)```\n(?:\n```text\n(?P<said>.*?)```)?", re.DOTALL
)
PROGRAMS = {found["name"]: (found["code"], found["said"]) for found in PROGRAM.finditer(PAGE)}

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all programs of the page."""
    path = tmp_path / "programs"
    path.mkdir()
    for name, (code, _) in PROGRAMS.items():
        (path / name).write_text(code)
    return path


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "own" / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "own" / "host.json"),
        "HOLDFAST_LOG_LEVEL": "error",
    }


def test_every_block_of_python_on_the_page_is_a_program_that_is_run():
    assert (len(re.findall("```python", PAGE)), set(PROGRAMS)) == (
        len(PROGRAMS),
        {"counter.py", "first.py", "agents.py", "app.py", "answers.py", "threads.py"},
    )


@pytest.mark.promise("LNK-01", "LNK-02", "LNK-18")
@pytest.mark.parametrize("name", sorted(name for name, (_, said) in PROGRAMS.items() if said))
async def test_a_program_prints_what_stands_below_it(folder: Path, tmp_path: Path, name: str):
    process = await asyncio.create_subprocess_exec(
        sys.executable, name, cwd=folder, env=environment(tmp_path), stdout=-1, stderr=-1
    )
    out, err = await process.communicate()

    assert (out.decode(), err.decode()) == (PROGRAMS[name][1], "")


@pytest.mark.promise("LNK-02")
async def test_two_requests_at_once_are_isolated(folder: Path, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "error"),
        cwd=folder,
        env=environment(tmp_path),
    )
    try:
        await until(lambda: _listening(port), 20)
        answers = await asyncio.gather(*(asyncio.to_thread(_get, port, number) for number in (1, 10, 100)))
    finally:
        process.terminate()
        await process.wait()

    assert [answer["total"] for answer in answers] == [3, 30, 300]
    assert len({answer["session"] for answer in answers}) == 3


def _listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _get(port: int, number: int) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/add/{number}", timeout=30) as answer:
        return json.load(answer)
