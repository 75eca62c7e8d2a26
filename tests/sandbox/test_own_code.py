import subprocess
import sys
from pathlib import Path


def test_an_interpreter_that_is_started_by_a_path_with_parent_steps_makes_no_other_folder_own_code(
    tmp_path: Path,
):
    steps = "/".join(".." for _ in tmp_path.parts[1:])
    python = f"{steps}{sys.executable}"
    code = "from holdfast.sandbox.own_code import OWN_CODE; print(*OWN_CODE, sep='\\n')"

    found = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    own = found.stdout.splitlines()
    assert str(Path(sys.executable).resolve()) in own
    assert [path for path in own if tmp_path.is_relative_to(path) and path != str(tmp_path)] == []
