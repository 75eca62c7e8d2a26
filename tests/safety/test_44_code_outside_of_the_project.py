"""Attack 44, continued: an approved program loads code that lies outside of its project, and a confined server rewrites that code."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.trust import Trust
from holdfast.resolve.program import describe_change
from holdfast.resolve.read_program import read_program
from tests.connect.conftest import HostFactory, folder, make_host
from tests.safety.test_44_rewriting_an_approved_program import (
    SERVER,
    WRITER,
    approve_project,
    open_and_call,
    write_server,
)

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio
ADDED = 'import sys\nsys.path.insert(0, "../shared")\nimport lib\n'
# The source of the server, the links in the project, and the folders that must be read-only.
CASES: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "named folder": (ADDED, {}, ("shared",)),
    "link to a folder": ("from inner import lib\n", {"app/inner": "../shared"}, ("shared",)),
    "link by way of another folder": (
        "import lib\n",
        {"app/lib.py": "../way/lib.py", "way/lib.py": "../shared/lib.py"},
        ("shared", "way"),
    ),
}


def make_project(folder: Path, start: str, links: dict[str, str]) -> Path:
    for name in ("app", "shared", "way", "free"):
        (folder / name).mkdir()
    write_server(folder / "app")
    (folder / "app/server.py").write_text(start + SERVER)
    (folder / "shared/lib.py").write_text("VERSION = 1\n")
    for link, target in links.items():
        (folder / link).symlink_to(target)
    return folder / "app"


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("case", CASES)
async def test_confined_server_cannot_change_code_outside_of_an_approved_project(
    make_host: HostFactory, folder: Path, tmp_path: Path, case: str
):
    start, links, protected = CASES[case]
    project = make_project(folder, start, links)
    writer = tmp_path / "writer.py"
    writer.write_text(WRITER)
    own: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(writer)],
        "readable": [str(writer)],
        "trust_level": "sandboxed",
    }
    written: dict[str, str] = {}
    async with make_host({"w": own}) as host:
        await approve_project(host, project, "server.py", "tools.txt")
        for name in (*protected, "free"):
            async with host.session(cwd=folder / name, trust=Trust.SANDBOXED) as session:
                path = str(folder / name / "new.py")
                written[name] = (await session.call("w.write", {"path": path})).text
        before = await open_and_call(host, project)
        (folder / "shared/lib.py").write_text("VERSION = 2\n")
        changed = await open_and_call(host, project)

    assert written == {**dict.fromkeys(protected, "Read-only file system"), "free": "written"}
    assert before == "run ran"
    assert "lib.py changed" in changed


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("require('../shared/lib.js')", "node s.js"),
        ("import('../app/../shared/lib')", "node s.js"),
        ("new Worker('../shared/lib.js')", "node s.js"),
        ("", "node --import=./inner/lib.js s.js"),
    ],
)
def test_file_outside_of_the_project_is_shown_and_checked(folder: Path, source: str, command: str):
    project = make_project(folder, "", {"app/inner": "../shared"})
    (project / "s.js").write_text(source)
    (folder / "shared/lib.js").touch()
    before = read_program(shlex.split(command), str(project))
    (folder / "shared/lib.js").write_text("evil")

    assert "../shared/lib.js" in before.files
    assert "lib.js changed" in describe_change(before.parts, read_program(shlex.split(command), str(project)))


def test_import_does_not_make_the_home_folder_part_of_a_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise one import of `../x.js` would make every project in the home read-only in sandboxes. The review notes the file."""
    project = make_project(folder, "", {})
    (project / "s.js").write_text("require('../x.js')")
    (folder / "x.js").touch()
    control = read_program(["node", "s.js"], str(project))
    monkeypatch.setenv("HOME", str(folder))
    program = read_program(["node", "s.js"], str(project))

    assert ([*program.files], program.is_partial) == (["s.js"], True)
    assert ([*control.files], control.is_partial) == (["s.js", "../x.js"], False)
