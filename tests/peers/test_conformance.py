"""The official conformance suite against a toolkit server over HTTP, in both eras.

`conformance_gaps.json` lists the scenarios that fail, each with its reason. The test fails when a listed scenario passes,
and when any other scenario fails.
"""

import json
import re
import subprocess

import pytest

from tests.peers.spawn import HERE, node_server
from tests.toolkit.server_process import run_http_server

GAPS: dict[str, dict[str, str]] = json.loads((HERE / "conformance_gaps.json").read_text(encoding="utf-8"))
SCENARIO = re.compile(r"^(✓|✗) ([a-z0-9-]+): \d+ passed, (\d+) failed", re.MULTILINE)
AT_LEAST = {"2025-11-25": 33, "2026-07-28": 40}


@pytest.mark.promise("KIT-18", "KIT-23", "KIT-24")
@pytest.mark.parametrize("version", sorted(GAPS))
def test_every_scenario_passes_except_the_known_gaps(version: str):
    with run_http_server("tests.peers.conformance_server") as url:
        suite = node_server(
            "conformance", "server", "--url", url, "--suite", "all", "--spec-version", version
        )
        said = subprocess.run(suite, capture_output=True, text=True, timeout=50, check=False).stdout

    failed = {name for _, name, failures in SCENARIO.findall(said) if failures != "0"}
    passed = {name for _, name, failures in SCENARIO.findall(said) if failures == "0"}

    assert failed == set(GAPS[version])
    assert len(passed) >= AT_LEAST[version]
