import json
import os
import shutil
import subprocess
import sys

import pytest

from holdfast.sandbox.escape_probe_runner import ESCAPE_PROBES

pytestmark = pytest.mark.skipif(
    not shutil.which("bwrap"), reason="needs bubblewrap, and says so where it is missing"
)


def doctor(*words: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )


@pytest.mark.promise("BOX-04")
def test_json_lists_the_result_of_every_probe() -> None:
    done = doctor("--json")
    found = json.loads(done.stdout)

    (sandbox,) = found["sandboxes"]
    assert (done.returncode, found["passed"], sandbox["sandbox"]) == (0, True, "bwrap")
    assert [(result["probe"], result["stopped"]) for result in sandbox["results"]] == [
        (probe, True) for probe in ESCAPE_PROBES
    ]


@pytest.mark.promise("BOX-04")
def test_doctor_prints_a_table_and_a_verdict() -> None:
    lines = doctor().stdout.splitlines()

    assert lines[1].split(maxsplit=1) == ["bwrap", "read a file outside its roots               stopped"]
    assert f"bwrap: all {len(ESCAPE_PROBES)} attempts were stopped." in lines


@pytest.mark.promise("BOX-04", "LNK-11")
def test_without_a_sandbox_doctor_says_what_to_install_and_exits_with_1() -> None:
    done = doctor(path="/nowhere")

    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        "bwrap: does not work, so confined servers are refused. bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'.",
    )


@pytest.mark.promise("BOX-05")
def test_a_container_engine_is_tested_too() -> None:
    done = doctor("--engine", "podman", "--image", "none", "--json")
    sandbox = json.loads(done.stdout)["sandboxes"][1]

    assert (done.returncode, sandbox["sandbox"], sandbox["works"]) == (1, "podman", False)
