"""Programs that use Holdfast pass a strict type checker: those in docs/python.md, and one that uses every public name."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest

import holdfast
from holdfast import ServerConfig
from tests.journeys import typed_program
from tests.journeys.test_python import PROGRAMS

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "peers" / "node_modules" / ".bin" / "pyright"
# The comment at the end of a line is the rule that must find the mistake in it.
WRONG = """
from holdfast import Host, ServerConfig

async def wrong(host: Host) -> None:
    async with host.session(titel="x"):  # reportCallIssue
        pass
    async with host.session(permission="maybe"):  # reportArgumentType
        pass
    async with host.run(keep="no") as session:  # reportArgumentType
        session.tool()  # reportAttributeAccessIssue reportUnknownMemberType
    Host(servers={"counter": "counter.py"})  # reportArgumentType
    async with host.session(ask=lambda: True):  # reportArgumentType
        pass
    config: ServerConfig = {"command": "x", "lifetme": "run"}  # reportAssignmentType
    print(config)
"""


@pytest.mark.slow
@pytest.mark.promise("API-01")
async def test_programs_pass_a_strict_type_checker_and_mistakes_do_not(tmp_path: Path):
    for name, (code, _) in PROGRAMS.items():
        (tmp_path / name).write_text(code)
    shutil.copy(typed_program.__file__, tmp_path / "typed_program.py")
    (tmp_path / "wrong.py").write_text(WRONG)
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(PYRIGHT, "--outputjson", "--pythonpath", sys.executable, "-p", tmp_path), cwd=tmp_path, stdout=-1
    )
    out, _ = await process.communicate()
    report = json.loads(out)

    found = {
        (Path(each["file"]).name, each["range"]["start"]["line"], each.get("rule"))
        for each in report["generalDiagnostics"]
    }
    expected = {
        ("wrong.py", number, rule)
        for number, line in enumerate(WRONG.split("\n"))
        for rule in line.partition("  # ")[2].split()
    }
    assert found == expected
    assert report["summary"]["filesAnalyzed"] == len(PROGRAMS) + 2


def test_every_class_of_events_is_public():
    public = {getattr(holdfast.events, name) for name in holdfast.events.__all__}

    assert {*get_args(holdfast.events.Event)} <= public


def test_typed_program_uses_every_public_name():
    used = vars(typed_program)

    assert [name for name in holdfast.__all__ if name not in used] == ["__version__"]
    assert all(used[name] is getattr(holdfast, name) for name in holdfast.__all__ if name in used)


def test_page_lists_every_key_of_a_server_and_no_other():
    page = (ROOT / "docs" / "python.md").read_text()
    table = page.partition("| key | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    listed = [key.strip(" `") for row in table.splitlines() for key in row.split("|")[1].split(",")]

    assert sorted(listed) == sorted(ServerConfig.__annotations__)
