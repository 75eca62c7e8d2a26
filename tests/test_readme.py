"""The README is correct."""

import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_example_runs(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "notes.md").write_text("TODO: water the tomatoes\n")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}

    done = subprocess.run(
        [sys.executable, "-c", code.replace("/path/to/project", str(tmp_path))],
        capture_output=True,
        text=True,
        env={**environ, "HOLDFAST_DATA_DIR": str(tmp_path / "data"), "HOLDFAST_LOG_LEVEL": "error"},
        check=True,
    )

    assert done.stdout.startswith("files.read\n")
    assert "water the tomatoes" in done.stdout


def test_commands_and_links_exist():
    named = set(re.findall(r"`(?:\.venv/bin/)?holdfast ([a-z]+)", README))
    links = re.findall(r"\]\((?!http|#)([^)#]+)", README)

    assert named - set(COMMANDS) == set()
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_picture_is_small_and_self_contained():
    picture = (ROOT / "docs" / "chat.svg").read_text(encoding="utf-8")

    assert len(picture) < 60_000
    assert re.findall(r"(?:url\(|href=)[\"']?https?:", picture) == []
