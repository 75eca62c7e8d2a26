"""Every program in docs/python.md runs, and prints the output shown below it."""

import asyncio
import json
import os
import re
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.commands import run_program
from tests.connect.processes import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
PROGRAM = re.compile(
    r"```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL
)
PROGRAMS = {found["name"]: (found["code"], found["output"]) for found in PROGRAM.finditer(PAGE)}

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


def test_every_python_block_of_the_page_is_run():
    assert (len(re.findall("```python", PAGE)), set(PROGRAMS)) == (
        len(PROGRAMS),
        {
            *("counter.py", "first.py", "options.py", "sub_agents.py", "agent.py", "app.py"),
            *("results.py", "threads.py", "boxes.py", "questions.py", "script.py", "reopen.py"),
        },
    )


@pytest.mark.promise("LNK-01", "LNK-02", "LNK-18")
@pytest.mark.parametrize("name", sorted(name for name, (_, output) in PROGRAMS.items() if output))
def test_program_prints_the_output_shown_below_it(folder: Path, tmp_path: Path, name: str):
    done = run_program(name, folder, environment(tmp_path))

    assert (done.stdout, done.stderr) == (PROGRAMS[name][1], "")


@pytest.mark.slow
@pytest.mark.promise("LNK-02")
async def test_concurrent_requests_are_isolated(folder: Path, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "error"),
        cwd=folder,
        env=environment(tmp_path),
    )
    try:
        await wait_until(lambda: _is_listening(port), 20)
        responses = await asyncio.gather(*(asyncio.to_thread(_get, port, number) for number in (1, 10, 100)))
    finally:
        process.terminate()
        await process.wait()

    assert [response["total"] for response in responses] == [3, 30, 300]
    assert len({response["session"] for response in responses}) == 3


def _is_listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _get(port: int, number: int) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/add/{number}", timeout=30) as response:
        return json.load(response)
