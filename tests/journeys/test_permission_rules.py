"""Rules in the settings and in a workspace decide about the calls of `holdfast call`."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.workspaces import Registry
from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


@pytest.mark.promise("SES-04")
@pytest.mark.parametrize(
    ("setting", "in_workspace", "code", "printed"),
    [
        ({}, "", 0, "water the tomatoes"),
        ({"HOLDFAST_PERMISSION_DENY": "*.read"}, "", 1, "is denied by the rule '*.read' of the settings."),
        (
            {"HOLDFAST_PERMISSION_ASK": "files"},
            "",
            1,
            "The rule 'files.*' of the settings requires permission",
        ),
        (
            {"HOLDFAST_PERMISSION_ALLOW": "files.read"},
            "[permission]\ndeny = ['files.re*']\n",
            1,
            "is denied by the rule 'files.re*' of the workspace 'garden'.",
        ),
    ],
    ids=["no rule", "deny", "ask", "workspace"],
)
def test_a_rule_refuses_a_call(
    tmp_path: Path, setting: dict[str, str], in_workspace: str, code: int, printed: str
) -> None:
    folder, data = tmp_path / "garden", tmp_path / "data"
    folder.mkdir()
    (folder / "notes.md").write_text("water the tomatoes\n")
    registry = Registry(data / "workspaces")
    file = registry.file_of(registry.add(folder).slug)
    file.write_text(file.read_text() + in_workspace)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}

    done = run_holdfast(
        "call",
        "files.read",
        '{"path": "notes.md"}',
        cwd=folder,
        env={**environ, **setting, "HOLDFAST_DATA_DIR": str(data), "HOLDFAST_LOG_LEVEL": "error"},
    )

    assert done.returncode == code, done.stderr
    assert printed in done.stdout + done.stderr
