"""The generated commands agree with the protocol's own description."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROTOCOL = ROOT / "peers/node_modules/devtools-protocol/json"
GENERATED = ROOT / "src/holdfast/builtin/stage/cdp/protocol.py"


@pytest.mark.skipif(not PROTOCOL.exists(), reason="The Node packages are not installed.")
def test_the_commands_are_those_that_the_script_generates():
    script = subprocess.run(
        [sys.executable, ROOT / "scripts/cdp"], capture_output=True, text=True, check=True
    )
    ruff = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", GENERATED, "-"]
    formatted = subprocess.run(
        ruff, input=script.stdout, capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert formatted.stdout == GENERATED.read_text(encoding="utf-8")
