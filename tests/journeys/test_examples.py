"""The programs in `examples/` run."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_review_team_reviews_a_repository():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "review_team" / "run.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "lead: I ask three reviewers." in done.stdout
    assert done.stdout.count(" calls files.read\n") == 3, "each reviewer read the program"
    assert "- security: app.py:4 passes its argument to a shell" in done.stdout
