import json
import os
import shutil
import subprocess
import sys

import pytest

from holdfast.sandbox.probes import ATTEMPTS

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
def test_every_attempt_is_made_and_a_program_can_read_what_held() -> None:
    done = doctor("--json")
    found = json.loads(done.stdout)

    (sandbox,) = found["sandboxes"]
    assert (done.returncode, found["held"], sandbox["sandbox"]) == (0, True, "bwrap")
    assert [(outcome["attempt"], outcome["held"]) for outcome in sandbox["outcomes"]] == [
        (attempt, True) for attempt in ATTEMPTS
    ]


@pytest.mark.promise("BOX-04")
def test_a_person_gets_a_table_and_a_verdict() -> None:
    lines = doctor().stdout.splitlines()

    assert lines[1].split(maxsplit=1) == ["bwrap", "read a file outside its roots               held"]
    assert f"bwrap: all {len(ATTEMPTS)} attempts were stopped." in lines


@pytest.mark.promise("BOX-04", "LNK-11")
def test_without_a_sandbox_it_says_what_to_install_and_exits_with_1() -> None:
    done = doctor(path="/nowhere")

    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        "bwrap: does not work, so confined servers are refused. bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'.",
    )


@pytest.mark.promise("BOX-05")
def test_an_engine_is_tried_beside_and_its_reason_told() -> None:
    done = doctor("--engine", "podman", "--image", "none", "--json")
    sandbox = json.loads(done.stdout)["sandboxes"][1]

    assert (done.returncode, sandbox["sandbox"], sandbox["works"]) == (1, "podman", False)
