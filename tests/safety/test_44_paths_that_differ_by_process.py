"""Attack 44, continued: a project names its program by a path that leads elsewhere in each process: `/proc/self/cwd/server.js`.

Holdfast would check the file that the path leads to in its own process, and the server would run another one.
"""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.model.resolution import Resolution
from holdfast.model.server import Source
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.load import load_file
from holdfast.resolve.read_program import read_program
from holdfast.resolve.validate import validate
from tests.connect.conftest import folder

__all__ = ["folder"]
ATTACKS = [
    "sh /proc/self/cwd/server.sh",
    "sh //proc/./thread-self//cwd/server.sh",
    "sh /usr/../proc/123/cwd/server.sh",
    "sh ../../../../../../../../../../proc/self/cwd/server.sh",
    "sh /dev/fd/0",
    "sh /dev/stdin",
    "/proc/self/cwd/server.sh",
    "node --import=file:///%70roc/self/cwd/server.mjs",
    "node -r/proc/self/cwd/server.js",
    "sh -c 'exec /pr\"\"oc/self/c\\wd/server.sh'",
    "sh -c 'cd /; exec proc/self/cwd/server.sh'",
    "env -C /proc/self/cwd sh server.sh",
    "sh ${UNSET:-/proc/self/cwd}/server.sh",
    "sh /pr${UNSET:-oc}/self/cwd/server.sh",
]
CALM = [
    "sh server.sh",
    "sh src/proc/server.sh",
    "server --out /dev/null",
    "server /opt/process/self/x",
    "server --to a/proc.txt",
]


def resolve(folder: Path, command: str, source: Source = Source.PROJECT) -> Resolution:
    program, *args = shlex.split(command)
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"s": {"command": program, "args": args}}}))
    return expand_servers(validate(load_file(source, file)), {})


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("command", ATTACKS)
def test_path_that_differs_by_process_is_refused(folder: Path, command: str):
    resolution = resolve(folder, command)

    assert not resolution.servers
    assert "names a path below /proc or /dev/fd" in resolution.refusals[0].reason


@pytest.mark.parametrize("command", CALM)
def test_control_other_paths_are_not_refused(folder: Path, command: str):
    assert not resolve(folder, command).refusals


def test_control_own_servers_may_name_such_paths(folder: Path):
    assert not resolve(folder, ATTACKS[0], Source.USER).refusals


def test_control_such_a_path_is_another_file_in_another_folder(folder: Path):
    (folder / "server.sh").write_text("echo ran")
    done = subprocess.run(shlex.split(ATTACKS[0]), cwd=folder, capture_output=True, text=True, check=True)

    assert done.stdout == "ran\n"
    assert not Path("/proc/self/cwd/server.sh").exists()


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("target", ["/proc/self/cwd", "/proc/thread-self/cwd/inner", "back"])
@pytest.mark.parametrize("name", ["link", "link/inner", "link/../link"])
def test_link_to_such_a_path_is_refused(folder: Path, target: str, name: str):
    (folder / "link").symlink_to(target)
    (folder / "back").symlink_to("/proc/self/cwd")
    problem = read_program(["sh", f"{name}/server.sh"], str(folder)).problem

    assert "reached by a link into /proc or /dev/fd" in problem


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("s.py", "open('/proc/self/cwd/helper')"),
        ("s.js", "require('/proc/self/cwd/helper')"),
        ("s.sh", ". /proc/self/cwd/helper"),
        ("s.sh", '. /pr""oc/self/cwd/helper'),
    ],
)
def test_such_a_path_in_a_source_is_noted(folder: Path, name: str, source: str):
    (folder / name).write_text(source)
    (folder / f"calm{Path(name).suffix}").write_text("")
    runner = {".py": "python3", ".js": "node", ".sh": "sh"}[Path(name).suffix]

    assert read_program([runner, name], str(folder)).is_partial
    assert not read_program([runner, f"calm{Path(name).suffix}"], str(folder)).is_partial
