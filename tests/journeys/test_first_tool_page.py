"""docs/first-tool.md works as it is written: each of its commands is run by a shell, in the home of a new user."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-tool.md").read_text(encoding="utf-8")
SCRIPT = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
CONSOLES = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LOOK, CALL, ADD, USE, CHANGE = CONSOLES


def commands(console: str) -> str:
    """What the user types: the lines after `$ `, with their continuations."""
    return "\n".join(line.removeprefix("$ ") for line in console.splitlines())


def run(home: Path, console: str, cwd: Path, typed: str = "") -> str:
    """Run the commands in a shell whose PATH is that of an activated environment; the output of all of them."""
    environ = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{ROOT / 'peers' / 'node_modules' / '.bin'}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        # `npx` finds the Inspector of this repository, and fetches nothing.
        "npm_config_offline": "true",
        "npm_config_prefix": str(ROOT / "peers"),
    }
    done = subprocess.run(
        ["sh", "-ec", commands(console)],
        cwd=cwd,
        env=environ,
        input=typed,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
def test_every_command_of_the_page_works_in_a_new_home(tmp_path: Path):
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    (work / "notes.py").write_text(SCRIPT)
    assert (ROOT / "peers" / "node_modules").is_dir(), "peers/node_modules is missing"
    (work / "node_modules").symlink_to(ROOT / "peers" / "node_modules")

    looked = run(home, LOOK, work)
    called = run(home, CALL, work)
    run(home, ADD, work)
    printed = run(home, f"{USE}{CHANGE}", work, typed="/call notes.list_notes {}\n")
    used, end = json.JSONDecoder().raw_decode(printed)

    assert "add_note" in looked
    assert '"written_by": "anonymous"' in json.dumps(
        json.loads(called[called.index("{") :])["structuredContent"]
    )
    assert used["title"] == "second"
    assert used["written_by"].startswith("sess_")
    assert (printed[end:].count("first"), printed[end:].count("second")) == (2, 2), "in a session, and in dev"
    assert (home / "blog").is_dir()
