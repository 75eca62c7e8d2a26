"""docs/stage.md and docs/stage-tools.md are true."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from tests.commands import run_holdfast
from tests.stage.client import Client, inside
from tests.stage.site import Site

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "stage.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[number]


@pytest.mark.slow
def test_the_lists_of_tools_are_up_to_date():
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts/stage", "--check"], capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.anyio
async def test_the_calls_answer_as_documented(client: Client, site: Site):
    site.page("/todo.html", block("html"))
    opened = await client.call("open", url=f"{site.url}/todo.html")
    field, button = re.findall(r"\[(\w+)\]", opened["page"])

    await client.call("fill", ref=field, value="Buy milk")
    clicked = await client.page("click", ref=button)
    await client.call("expect", text="Buy milk")

    def plain(text: str) -> str:
        return re.sub(r"\[(?:t\d+)?(e\d+)\]", r"[\1]", text).replace(site.url, "http://127.0.0.1:8000")

    assert plain(inside(opened["page"])) + "\n" == block("text", 1)
    assert plain(clicked) + "\n" == block("text", 2)


@pytest.mark.slow
@pytest.mark.promise("STG-20")
@pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
def test_the_calls_work_in_a_chat(tmp_path: Path, site: Site):
    site.page("/todo.html", block("html"))
    (tmp_path / "config.toml").touch()
    environ = {
        **os.environ,
        "HOLDFAST_CONFIG": str(tmp_path / "config.toml"),
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
    }

    calls = block("text").replace("http://127.0.0.1:8000", site.url)
    calls += '/call stage.expect {"text": "Buy bread", "timeout": 0.5}\n'
    done = run_holdfast("chat", "--mode", "auto", cwd=tmp_path, env=environ, input=calls)

    assert (done.returncode, done.stdout.count(" failed:")) == (1, 1), done.stdout + done.stderr
    assert "[e4] checkbox Buy milk" in done.stdout
    assert '"passed": true' in done.stdout
    assert "- expected: the text 'Buy bread' on the page\n- actual:\n<page " in done.stdout
    assert "\nno such text\n" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
def test_the_python_example_prints_what_is_documented(tmp_path: Path, site: Site):
    site.page("/todo.html", block("html"))
    (tmp_path / "test_todo.py").write_text(block("python"))
    (tmp_path / "config.toml").touch()
    environ = {
        **os.environ,
        "HOLDFAST_CONFIG": str(tmp_path / "config.toml"),
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
    }

    done = subprocess.run(
        [sys.executable, "test_todo.py", f"{site.url}/todo.html"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, block("text", 3)), done.stderr
