"""The official conformance suite through the gateway, with a toolkit server behind it.

`gateway_conformance_gaps.json` lists the scenarios that pass directly and fail through the gateway, each with its reason: by the version
of the protocol, and by whether names are bare or qualified. The test fails when a listed scenario passes, and when any other scenario
fails. The suite uses fixed names, so it does not find tools and prompts whose names have the prefix of their server. The same two servers
pass everything with bare names.

By default, one combination runs. With HOLDFAST_CONFORMANCE=all (`make conformance`), the server is behind the gateway over stdio and
over HTTP, alone and beside another one, in both versions of the protocol. HOLDFAST_SDK_EXAMPLE can name the folder of the official
Python SDK's `everything-server` example, which then is used instead of the toolkit server.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.peers.spawn import HERE, node_server
from tests.toolkit.server_process import ROOT, run_http_server

GAPS: dict[str, dict[str, dict[str, str]]] = json.loads(
    (HERE / "gateway_conformance_gaps.json").read_text(encoding="utf-8")
)
SCENARIO = re.compile(r"^(✓|✗) ([a-z0-9-]+): \d+ passed, (\d+) failed", re.MULTILINE)
AT_LEAST = {"2025-11-25": 33, "2026-07-28": 40}
OTHER = {"command": sys.executable, "args": [str(HERE / "sdk_server.py")]}
EXAMPLE = os.environ.get("HOLDFAST_SDK_EXAMPLE", "")
ALL = [
    (version, transport, servers)
    for version in sorted(GAPS)
    for transport in ("stdio", "http")
    for servers in ("one", "two", "two, qualified")
]
FEW = [("2026-07-28", "stdio", "one")]


@pytest.mark.timeout(400)
@pytest.mark.promise("GW-05")
@pytest.mark.parametrize(
    ("version", "transport", "servers"), ALL if os.environ.get("HOLDFAST_CONFORMANCE") == "all" else FEW
)
def test_every_scenario_passes_through_the_gateway_except_the_known_gaps(
    version: str, transport: str, servers: str
):
    with ExitStack() as ends:
        entries: dict[str, Any] = {"tested": _entry(transport, ends)}
        if servers != "one":
            entries["other"] = OTHER
        options = ["--bare-names"] if servers == "two" else []  # one server has bare names by default
        url = ends.enter_context(
            run_http_server("tests.gateway.gateway_process", json.dumps(entries), *options)
        )
        suite = node_server(
            "conformance", "server", "--url", url, "--suite", "all", "--spec-version", version
        )
        said = subprocess.run(suite, capture_output=True, text=True, timeout=300, check=False).stdout

    failed = {name for _, name, failures in SCENARIO.findall(said) if failures != "0"}
    passed = {name for _, name, failures in SCENARIO.findall(said) if failures == "0"}

    names = "qualified" if servers == "two, qualified" else "bare"

    assert failed - _fails_directly(version) == set(GAPS[version][names]) - _fails_directly(version), said
    assert len(passed | failed) >= AT_LEAST[version]


def _entry(transport: str, ends: ExitStack) -> dict[str, Any]:
    if transport == "http":
        module = "tests.peers.sdk_example" if EXAMPLE else "tests.peers.conformance_server"
        url = ends.enter_context(run_http_server(module))
        # A remote server does not learn local paths unless its entry allows it.
        return {"type": "http", "url": url, "asks": ["roots", "elicitation", "sampling"]}
    if EXAMPLE:
        code = f"import sys; sys.path.insert(0, {EXAMPLE!r}); from mcp_everything_server.server import mcp; mcp.run('stdio')"
        return {"command": sys.executable, "args": ["-c", code]}
    return {
        "command": sys.executable,
        "args": ["-m", "tests.peers.conformance_server"],
        "env": {"PYTHONPATH": str(Path(ROOT))},
    }


def _fails_directly(version: str) -> set[str]:
    """The SDK's example lacks two tools that one scenario wants; the toolkit server passes every scenario."""
    return {"server-stateless"} if EXAMPLE and version == "2026-07-28" else set()
