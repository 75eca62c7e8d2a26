"""`scripts/retest`: failed tests count only if they also fail by themselves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RETEST = Path(__file__).parent.parent / "scripts" / "retest"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failed", "code", "said"),
    [
        (
            ["test_it.py::test_good"],
            0,
            "Unsteady: failed once, passed 3 times alone:\n  test_it.py::test_good",
        ),
        (["test_it.py::test_good", "test_it.py::test_bad"], 1, "A test failed again."),
        ([f"test_it.py::test_good{number}" for number in range(6)], 1, "6 failures are not repeated."),
        (["test_it.py"], 1, "1 failures are not repeated."),  # it could not be imported
        ([], 1, "0 failures are not repeated."),
    ],
)
def test_only_a_few_failures_that_do_not_happen_again_pass(
    tmp_path: Path, failed: list[str], code: int, said: str
) -> None:
    script, cache = tmp_path / "scripts" / "retest", tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    for folder in (script.parent, cache.parent):
        folder.mkdir(parents=True)
    script.write_bytes(RETEST.read_bytes())
    cache.write_text(json.dumps(dict.fromkeys(failed, True)))
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_a_run_that_left_no_list_is_not_repeated(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "retest"
    script.parent.mkdir()
    script.write_bytes(RETEST.read_bytes())

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert (done.returncode, "left no list" in done.stderr) == (1, True)
