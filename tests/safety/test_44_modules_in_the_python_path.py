"""Attack 44, continued: a module that is put into a folder of an approved `PYTHONPATH`, and other values that name code."""

import json
import sys
from pathlib import Path

import pytest

from holdfast import Host
from holdfast.cli.servers.describe_entry import describe_entry
from holdfast.model.server import Source
from holdfast.resolve.approved_variables import module_folders
from holdfast.resolve.collect_commands import CommandCollector
from holdfast.resolve.entry_summary import entry_command, summarize
from holdfast.resolve.load import load_file
from holdfast.resolve.read_program import read_program
from tests.connect.conftest import HostFactory, folder, make_host

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("changing_tools_server.py").read_text()
TOOLS = [{"name": "run", "inputSchema": {"type": "object"}}]


async def approve(host: Host, folder: Path) -> None:
    (entry,) = load_file(Source.PROJECT, folder / ".mcp.json").entries
    names = module_folders(summarize(entry).env)
    program = await host.approvals.read_program(entry_command(entry), str(folder), names)
    await host.approvals.approve_server(entry, by="ann", program=program)


async def refusals(host: Host, folder: Path) -> list[str]:
    """Why a direct session refuses the server. Empty if it answered."""
    async with host.session(cwd=folder) as session:
        found = [refusal.reason for refusal in session.refusals]
        if not found:
            await session.call("theirs.run")
        return found


def add_nothing(self: CommandCollector, folder: str) -> None:
    pass


@pytest.mark.promise("CTX-04", "RES-07")
@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
@pytest.mark.parametrize("name", ["sitecustomize.py", "deep/er/module.py"])
async def test_module_that_is_added_to_a_folder_of_the_python_path_needs_approval(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(CommandCollector, "add_module_folder", add_nothing)
    mark, module = folder / "mark", folder / "src" / name
    (folder / "src").mkdir()
    imported = name.removesuffix(".py").replace("/", ".")
    # Backwards, so that the search for imports in the source does not find the name.
    load = f"import importlib\ntry: importlib.import_module({imported[::-1]!r}[::-1])\nexcept ImportError: pass\n"
    (folder / "server.py").write_text(load + SERVER)
    (folder / "tools.txt").write_text(json.dumps(TOOLS))
    entry = {"command": sys.executable, "args": ["server.py", "tools.txt"], "env": {"PYTHONPATH": "src"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}))
    async with make_host({}) as host:
        before = await refusals(host, folder)
        await approve(host, folder)
        approved = await refusals(host, folder)
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(f"open({str(mark)!r}, 'w').close()\n")
        changed = await refusals(host, folder)
        has_run = mark.exists()
        await approve(host, folder)
        again = await refusals(host, folder)

    assert (len(before), approved, again) == (1, [], [])
    assert before[0].startswith("It is not approved")
    assert has_run is not is_protected
    assert [f"src/{name} is new" in reason for reason in changed] == [True] * is_protected
    assert mark.exists()


@pytest.mark.promise("CTX-04", "RES-07")
async def test_another_value_of_the_variable_needs_approval(make_host: HostFactory, folder: Path):
    for name in ("src", "evil"):
        (folder / name).mkdir()
        (folder / name / "helper.py").write_text(f"open({str(folder / name / 'mark')!r}, 'w').close()\n")
    (folder / "server.py").write_text(f"import helper\n{SERVER}")
    (folder / "tools.txt").write_text(json.dumps(TOOLS))
    entry = {"command": sys.executable, "args": ["server.py", "tools.txt"]}
    reasons: dict[str, list[str]] = {}
    async with make_host({}) as host:
        for name in ("src", "evil"):
            env = {"env": {"PYTHONPATH": name}}
            (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {**entry, **env}}}))
            if name == "src":
                await approve(host, folder)
            reasons[name] = await refusals(host, folder)

    assert (reasons["src"], len(reasons["evil"])) == ([], 1)
    assert "has changed since you approved it" in reasons["evil"][0]
    assert [(folder / name / "mark").exists() for name in reasons] == [True, False]


@pytest.mark.promise("CTX-04", "RES-07")
def test_everything_that_python_can_import_from_the_folder_belongs_to_the_program(tmp_path: Path):
    names = {"a.py", "b.so", "c.pyc", "p/__init__.py", "space/m.py", "x.egg-info/entry_points.txt", "y.egg"}
    for name in (*names, "notes.txt", ".hidden/m.py", "__pycache__/a.cpython-313.pyc", "node_modules/m.py"):
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text("")

    found = read_program([sys.executable, "-c", "pass"], str(tmp_path), module_folders=("lib",))
    control = read_program([sys.executable, "-c", "pass"], str(tmp_path))

    assert ({*found.files}, found.problem) == ({f"lib/{name}" for name in names}, "")
    assert not control.files


@pytest.mark.promise("CTX-04", "RES-07")
def test_what_cannot_be_checked_in_the_folder_is_a_problem(tmp_path: Path):
    for name in ("linked", "many"):
        (tmp_path / name).mkdir()
    (tmp_path / "linked" / "package").symlink_to(tmp_path / "many")
    (tmp_path / "zipped").write_text("")
    for number in range(501):
        (tmp_path / "many" / f"m{number}.py").touch()

    def problem(*folders: str) -> str:
        return read_program(["python"], str(tmp_path), module_folders=folders).problem

    assert problem("linked").endswith(
        "package is a link to a folder, in a folder of the PYTHONPATH; remove it"
    )
    assert problem("zipped").endswith("zipped is in the PYTHONPATH, but not a folder; remove it there")
    assert "too large to check all Python modules in it" in problem("many")
    assert not problem("missing")


@pytest.mark.promise("CTX-04")
def test_review_shows_such_a_variable_in_a_line_of_its_own(tmp_path: Path):
    env = {"DEBUG": "1", "PYTHONPATH": "src", "TOKEN": "t"}
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"command": "python", "env": env}}}))
    (entry,) = load_file(Source.PROJECT, file).entries

    assert describe_entry(summarize(entry))[1:] == [
        'env:       DEBUG = "1"',
        '           TOKEN = "t"',
        'code from: PYTHONPATH = "src", which decides which code runs',
    ]


def test_modules_of_the_python_path_do_not_hide_that_a_command_names_no_file(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()

    assert "no such file was found" in read_program(["make"], str(tmp_path), module_folders=["src"]).problem
