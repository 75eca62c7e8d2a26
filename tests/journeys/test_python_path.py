"""A project whose Python server needs `PYTHONPATH=src`: approved at the command line, in direct and in sandboxed sessions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_holdfast
from tests.journeys.editor import environment

pytestmark = pytest.mark.usefixtures("bwrap")

SERVER = """
import os
from holdfast.toolkit import Toolbox
from shop.prices import PRICE

box = Toolbox("shop")

@box.tool(operation="query")
def price() -> str:
    "The price."
    return f"{PRICE} {os.environ['PYTHONPATH']}"

box.main()
"""


@pytest.mark.slow
@pytest.mark.promise("CTX-04", "RES-07")
def test_server_that_needs_a_python_path_runs_after_approval(home: Path, cwd: Path):
    (cwd / "src" / "shop").mkdir(parents=True)
    (cwd / "src" / "shop" / "__init__.py").touch()
    prices = cwd / "src" / "shop" / "prices.py"
    prices.write_text("PRICE = 5\n")
    (cwd / "src" / "shop" / "server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": ["-m", "shop.server"]}
    entry["env"] = {"PYTHONPATH": "src", "NODE_OPTIONS": "--no-warnings"}  # type: ignore[assignment]
    (cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return run_holdfast(*words, cwd=cwd, env=environment(home))

    def price(*options: str) -> str:
        done = run("call", "shop.price", "{}", *options)
        return json.loads(done.stdout)["result"] if done.returncode == 0 else done.stderr

    before = price()
    shown = run("servers", "approve", "--direct").stdout
    direct = price()
    prices.write_text("PRICE = 6\n")
    changed = price()
    again = run("servers", "approve", "--direct").stdout
    approved_again = price()
    run("servers", "approve", "shop", "--confined")
    confined = price()
    sandboxed = price("--trust", "sandboxed")

    assert "It is not approved" in before
    assert 'code from: PYTHONPATH = "src", which decides which code runs' in shown
    assert 'NODE_OPTIONS = "--no-warnings", which decides which code runs' in shown
    assert '"src/shop/prices.py"' in shown
    assert (direct, approved_again, confined) == (f"5 {cwd}/src", f"6 {cwd}/src", f"6 {cwd}/src")
    assert "src/shop/prices.py changed" in changed
    assert "src/shop/prices.py changed" in again
    assert "PYTHONPATH may not come from" in sandboxed
    assert "in a sandboxed session: it makes Python load other code" in sandboxed
