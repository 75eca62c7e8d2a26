"""Attack 44: a confined server rewrites the program of an approved project server, which runs with all rights later."""

import importlib.util
import json
import marshal
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.audit import Audit
from holdfast.host.approvals import Approvals
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import INSTRUCTION_FILES
from holdfast.model.server import Http, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve import executed_paths, unconfined_paths
from holdfast.resolve.entry_summary import entry_command
from holdfast.resolve.executed_paths import executed_by
from holdfast.resolve.file_hashes import MAX_BYTES
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.load import load_file
from holdfast.resolve.read_program import read_program
from holdfast.resolve.unconfined_paths import UnconfinedPaths
from holdfast.sandbox.own_code import resolve_with_links
from tests.connect.conftest import HostFactory, folder, make_host
from tests.sandbox.support import bind_mount

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("changing_tools_server.py").read_text()
TOOLS = [{"name": "run", "inputSchema": {"type": "object"}}]
WRITER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]}
    else:
        try:
            open(params["arguments"]["path"], "a").write("# rewritten")
            text = "written"
        except OSError as error:
            text = error.strerror
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def approve_project(host: Host, folder: Path, *args: str) -> None:
    """A project whose server is the given command; approved as it is now."""
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"command": sys.executable, "args": [*args]}}}))
    (entry,) = load_file(Source.PROJECT, file).entries
    program = await host.approvals.read_program(entry_command(entry), str(folder))
    await host.approvals.approve_server(entry, by="ann", program=program)


async def open_and_call(host: Host, folder: Path) -> str:
    """Call the project's server in a direct session. Return the result, or why the server was refused."""
    async with host.session(cwd=folder) as session:
        if refused := [refusal.reason for refusal in session.refusals]:
            return refused[0]
        return (await session.call("theirs.run")).text


def write_server(folder: Path) -> None:
    (folder / "server.py").write_text(f"import json\nimport helper\n{SERVER}")
    (folder / "helper.py").write_text("VERSION = 1\n")
    (folder / "tools.txt").write_text(json.dumps(TOOLS))


def rewrite(folder: Path) -> None:
    (folder / "server.py").write_text(f"# evil\n{SERVER}")


def rewrite_helper(folder: Path) -> None:
    (folder / "helper.py").write_text("import os  # evil\n")


def shadow_a_module(folder: Path) -> None:
    (folder / "json.py").write_text("raise SystemExit('evil')\n")


def shadow_a_module_of_the_library(folder: Path) -> None:
    (folder / "codecs").mkdir()
    (folder / "codecs" / "__init__.py").write_text("raise SystemExit('evil')\n")


def put_a_library_before_a_module(folder: Path) -> None:
    (folder / "helper.so").write_bytes(b"\x7fELF")


def replace_by_folder(folder: Path) -> None:
    (folder / "server.py").unlink()
    (folder / "server.py").mkdir()
    (folder / "server.py" / "__main__.pyc").write_bytes(b"evil")


def remove(folder: Path) -> None:
    (folder / "server.py").unlink()
    (folder / "helper.py").unlink()


def replace_by_link(folder: Path) -> None:
    other = folder / "other"
    other.write_text(f"# evil\n{SERVER}")
    (folder / "server.py").unlink()
    (folder / "server.py").symlink_to(other)


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (rewrite, "server.py changed"),
        (rewrite_helper, "helper.py changed"),
        (shadow_a_module, "json.py is new"),
        (replace_by_link, "server.py changed"),
        (shadow_a_module_of_the_library, "codecs/ is new"),
        (put_a_library_before_a_module, "helper.so is new"),
        (replace_by_folder, "server.py/__main__.pyc is new"),
        (remove, "server.py is gone"),
    ],
)
async def test_changed_program_does_not_run_until_it_is_approved_again(
    make_host: HostFactory, folder: Path, change: Callable[[Path], None], told: str
):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        before = await open_and_call(host, folder)
        change(folder)
        changed = await open_and_call(host, folder)

    assert before == "run ran"
    assert changed.startswith("Its program is not as it was approved: ")
    assert told in changed


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("command", "script", "names"),
    [
        ("python3 -m server", "server.py", {"new.py", "new.so"}),
        ("python3 server.py", "server.py", {"new.py", "new.so"}),
        ("node server.mjs", "server.mjs", {"new.js"}),
        ("./server", "server", {"new.py", "new.so", "new.js"}),
    ],
)
def test_only_modules_that_a_program_can_load_need_an_approval(
    tmp_path: Path, command: str, script: str, names: set[str]
):
    (tmp_path / script).write_text("")
    for name in ("new.py", "new.js", "new.so"):
        (tmp_path / name).write_text("")

    program = read_program(shlex.split(command), str(tmp_path))

    assert {*program.parts} - {script} == names


@pytest.mark.promise("RES-07")
async def test_data_that_a_command_names_may_change(make_host: HostFactory, folder: Path):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (folder / "tools.txt").write_text(json.dumps([*TOOLS, {**TOOLS[0], "name": "more"}]))

        assert await open_and_call(host, folder) == "run ran"


@pytest.mark.parametrize("obstacle", ["fifo", "too large"])
async def test_program_that_cannot_be_read_is_refused_at_once(
    make_host: HostFactory, folder: Path, obstacle: str
):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (folder / "server.py").unlink()
        if obstacle == "fifo":
            os.mkfifo(folder / "server.py")
        else:
            with (folder / "server.py").open("wb") as file:
                file.truncate(MAX_BYTES + 1)
        refused = await open_and_call(host, folder)

    assert refused.startswith("Its program cannot be checked: ")


async def test_program_that_is_replaced_while_it_starts_is_stopped(make_host: HostFactory, folder: Path):
    write_server(folder)
    swap = "import os, pathlib\nme = pathlib.Path(__file__)\nme.rename('away')\nos.rename('away', me)\n"
    (folder / "server.py").write_text(swap + SERVER)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")

        assert (
            await open_and_call(host, folder)
            == "The program of 'theirs' was replaced while it was being started."
        )


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
async def test_confined_server_cannot_write_where_an_approved_program_lies(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    write_server(folder)
    (folder / "sub").mkdir()
    writer = tmp_path / "writer.py"
    writer.write_text(WRITER)
    own: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(writer)],
        "readable": [str(writer)],
        "trust_level": "sandboxed",
    }
    paths = ["server.py", "helper.py", "tools.txt", "ssl.py", "sub/new.py"]
    async with make_host({"w": own, "granted": {**own, "writable": ["."]}}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        async with host.session(cwd=folder, trust=Trust.SANDBOXED) as session:
            assert {"w", "granted"} <= {*session.available}, session.refusals[-1].reason
            written = [(await session.call("w.write", {"path": str(folder / path)})).text for path in paths]
            control = (await session.call("granted.write", {"path": str(folder / "ssl.py")})).text
            (warning,) = session.warnings
        changed = await open_and_call(host, folder)

    assert (written, control) == (["Read-only file system"] * len(paths), "written")
    assert warning.server == "w"
    assert warning.text.startswith(
        f"It can read {folder} but not change it: you approved a server that runs programs in this folder with your rights."
        f' To let it write there, write "writable": ["."] in its entry in {tmp_path}/config/'
    )
    assert "ssl.py is new" in changed


@pytest.mark.promise("RES-07", "BOX-01")
async def test_approved_program_cannot_be_rewritten_through_a_bind_mount(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    write_server(folder)
    writer, alias = tmp_path / "writer.py", tmp_path.resolve() / "alias"
    writer.write_text(WRITER)
    alias.mkdir()
    own: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(writer)],
        "readable": [str(writer)],
        "trust_level": "sandboxed",
    }
    async with make_host({"w": own}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        with bind_mount(folder, alias):
            async with host.session(cwd=alias, trust=Trust.SANDBOXED) as session:
                written = (await session.call("w.write", {"path": str(alias / "ssl.py")})).text
        async with host.session(cwd=alias, trust=Trust.SANDBOXED) as session:
            control = (await session.call("w.write", {"path": str(alias / "ssl.py")})).text

    assert (written, control) == ("Read-only file system", "written")


@pytest.mark.promise("RES-07", "BOX-01")
async def test_file_tools_of_a_sandboxed_session_cannot_write_where_an_approved_program_lies(
    make_host: HostFactory, folder: Path
):
    project, other = folder / "project", folder / "other"
    for made in (project, other):
        made.mkdir()
    write_server(project)
    writes = {project: "helper.py", folder: "project/new/module.py", other: "notes.txt"}
    written: list[bool] = []
    async with make_host({}) as host:
        await approve_project(host, project, "server.py", "tools.txt")
        for root, path in writes.items():
            async with host.session(cwd=root, trust=Trust.SANDBOXED) as session:
                written.append((await session.call("files.write", {"path": path, "text": "evil"})).ok)
        approved = await open_and_call(host, project)
        # The control: a direct session may change the program, which is asked about again. Once sandboxed, it may not.
        async with host.session(cwd=folder) as session:
            change = {"path": "project/helper.py", "text": "evil"}
            control = (await session.call("files.write", change)).ok
            await session.lower_trust()
            lowered = await session.call("files.write", {**change, "text": "more"})
        changed = await open_and_call(host, project)

    assert (written, approved, control, lowered.ok) == ([False, False, True], "run ran", True, False)
    assert "a sandboxed session cannot change it" in lowered.text
    assert "helper.py changed" in changed


PLANTED = "import pathlib\npathlib.Path('evil').touch()\nVERSION = 1\n"


def plant_bytecode(folder: Path) -> None:
    """Put other code into `__pycache__`, marked as not to be compared with the source."""
    cached = Path(importlib.util.cache_from_source(str(folder / "helper.py")))
    cached.parent.mkdir(exist_ok=True)
    flags = (1).to_bytes(4, "little")
    code = marshal.dumps(compile(PLANTED, "helper.py", "exec"))
    cached.write_bytes(importlib.util.MAGIC_NUMBER + flags + bytes(8) + code)


@pytest.mark.promise("RES-07")
async def test_planted_bytecode_does_not_run(make_host: HostFactory, folder: Path):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        plant_bytecode(folder)
        answer = await open_and_call(host, folder)
    ran = (folder / "evil").exists()
    subprocess.run([sys.executable, "server.py", "tools.txt"], cwd=folder, input=b"", check=True)

    assert (answer, ran) == ("run ran", False)
    assert (folder / "evil").exists(), "the control did not run the planted code"


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("options", [["-BE"], ["-B", "-X", "pycache_prefix="]])
async def test_planted_bytecode_does_not_run_if_the_command_drops_the_variable(
    make_host: HostFactory, folder: Path, options: list[str]
):
    write_server(folder)
    command = [sys.executable, *options, "server.py", "tools.txt"]
    async with make_host({}) as host:
        plant_bytecode(folder)  # it was there before the approval
        with pytest.raises(HoldfastError) as refused:
            await approve_project(host, folder, *command[1:])
        shutil.rmtree(folder / "__pycache__")
        await approve_project(host, folder, *command[1:])
        approved = await open_and_call(host, folder)
        plant_bytecode(folder)
        answer = await open_and_call(host, folder)
    ran = (folder / "evil").exists()
    environment = {"PYTHONPYCACHEPREFIX": str(folder.parent / "elsewhere")}
    subprocess.run(command, cwd=folder, input=b"", check=True, env=environment)

    assert (approved, ran) == ("run ran", False)
    assert "Delete the folder __pycache__" in refused.value.message
    assert answer.startswith("Its program cannot be checked: Python may run __pycache__/helper.")
    assert (folder / "evil").exists(), "the control did not run the planted code"


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("command", "first_line", "is_read"),
    [
        *((f"python3 {options} server.py", "", True) for options in ("-E", "-I", "-bsE", "-X pycache_prefix=x")),
        *((f"{launcher} python3 server.py", "", True) for launcher in ("env -i", "env -u X", "sudo", "tox run --")),
        ("sh -c 'unset PYTHONPYCACHEPREFIX; python3 server.py'", "", True),
        ("uv run env -i python3 server.py", "", True),
        ("uv run --env-file .env server.py", "", True),
        ("uv run python3 -E server.py", "", True),
        ("python3.7 server.py", "", True),
        ("python3 -m installed server.py", "", True),
        ("./server.py", "#!/usr/bin/python3 -E", True),
        ("python3 server.py", "import sys; sys.pycache_prefix = None", True),
        # In these, Python certainly gets the variable. What a test run leaves in `__pycache__` needs no approval.
        *((f"{python} server.py", "#!/usr/bin/env python3", False) for python in ("python3", "/opt/bin/python3.12 -u")),
        ("python3 -X utf8 -m server", "", False),
        ("python3 -uc 'import server'", "", False),
        ("./server.py", "#!/usr/bin/env python3", False),
        ("uv run --directory . server.py", "#!/usr/bin/env -S uv run --script", False),
    ],
)  # fmt: skip
def test_bytecode_that_python_may_read_is_part_of_the_program(
    tmp_path: Path, command: str, first_line: str, is_read: bool
):
    write_server(tmp_path)
    (tmp_path / "server.py").write_text(f"{first_line}\nimport helper\n")
    plant_bytecode(tmp_path)

    program = read_program(shlex.split(command), str(tmp_path))

    assert {*program.files} >= {"server.py", "helper.py"}
    assert any(path.endswith(".pyc") for path in program.files) == is_read


ENDING = WRITER.replace(
    "        try:\n", "        if params['arguments'].get('end'):\n            sys.exit()\n        try:\n"
)


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("change", ["revoke", "confine", "nothing, the control"])
async def test_revoked_server_is_not_started_again(
    make_host: HostFactory, folder: Path, tmp_path: Path, change: str
):
    # No file of the project is part of the program, so there is nothing else to compare.
    program = tmp_path / "program.py"
    program.write_text(ENDING)
    async with make_host({}) as host:
        await approve_project(host, folder, "-I", "-S", str(program))
        (entry,) = load_file(Source.PROJECT, folder / ".mcp.json").entries
        async with host.session(cwd=folder) as session:
            if change == "revoke":
                await host.approvals.revoke_server(entry.origin, entry.name, by="ann")
            elif change == "confine":
                read = await host.approvals.read_program(entry_command(entry), str(folder))
                await host.approvals.approve_server(entry, by="ann", program=read, grant=ConfinedGrant())
            ended = await session.call("theirs.write", {"end": True})
            again = await session.call("theirs.write", {"path": str(tmp_path / "again")})

    assert not ended.ok
    assert (again.ok, (tmp_path / "again").exists()) == ((change.endswith("control"),) * 2), again.text
    assert (
        again.ok
        or "the approval of this server was revoked, or replaced by one with other rights" in again.text
    )


@pytest.mark.promise("RES-07")
async def test_project_server_that_another_process_revokes_is_ended(make_host: HostFactory, folder: Path):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (entry,) = load_file(Source.PROJECT, folder / ".mcp.json").entries
        async with host.session(cwd=folder) as session:
            before = [spec.name for spec in host.links.specs() if spec.source is Source.PROJECT]
            elsewhere = Approvals(host.store, Audit(host.store), pin_tools="")
            await elsewhere.revoke_server(entry.origin, entry.name, by="ann")
            await host.approvals.on_change()  # what the host does every few seconds
            after = [spec.name for spec in host.links.specs() if spec.source is Source.PROJECT]
            refused = await session.call("theirs.run")

    assert (before, after, refused.ok) == (["theirs"], [], False)


@pytest.mark.promise("RES-07")
async def test_remote_server_that_is_revoked_is_not_connected_again(make_host: HostFactory, folder: Path):
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"url": "https://example.org/mcp"}}}))
    (entry,) = load_file(Source.PROJECT, file).entries
    spec = ServerSpec(
        name="theirs",
        source=Source.PROJECT,
        transport=Http(url="https://example.org/mcp"),
        origin=entry.origin,
        digest=entry.digest,
    )
    async with make_host({}) as host:
        await host.approvals.approve_server(entry, by="ann")
        await host.approvals.check_program(spec, str(folder))
        await host.approvals.revoke_server(entry.origin, entry.name, by="ann")
        with pytest.raises(HoldfastError, match="the approval of this server was revoked"):
            await host.approvals.check_program(spec, str(folder))


def own_writer(tmp_path: Path) -> dict[str, Any]:
    """The entry of a server that writes to files, for sandboxed sessions."""
    writer = tmp_path / "writer.py"
    writer.write_text(WRITER)
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(writer)],
        "readable": [str(writer)],
        "trust_level": "sandboxed",
    }


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
async def test_nothing_in_a_sandboxed_session_can_write_where_own_programs_lie(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = (
        "bin/notes",
        ".venv/bin/python3",
        "tools/tool.py",
        "app/build/x.js",
        "app/package.json",
        "cwd/x",
        "free/x",
    )
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("#!/bin/sh\n")
        (folder / file).chmod(0o755)
    link = tmp_path / "tool"
    link.symlink_to(folder / "tools" / "tool.py")
    monkeypatch.setenv("PATH", f"{folder}/.venv/bin:{os.environ['PATH']}")
    own = {
        "notes": {"command": str(folder / "bin" / "notes")},
        "tool": {"command": "sh", "args": ["-c", f"exec {link}"]},
        "app": {"command": "node", "args": [str(folder / "app" / "build" / "x.js")]},
        "cwd": {"command": "true", "cwd": str(folder / "cwd")},
        "confined": {"command": str(folder / "free" / "x"), "confined": True},
    }
    writer = own_writer(tmp_path)
    paths = ["bin/new", ".venv/bin/python3", "tools/ssl.py", "app/node_modules", "cwd/new", "free/new"]
    async with (
        make_host({"w": writer, "granted": {**writer, "writable": ["."]}, **own}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*", "granted.*", "files.*"]) as session,
    ):
        tools = [(await session.call("files.write", {"path": path, "text": ""})).ok for path in paths]
        written = [(await session.call("w.write", {"path": str(folder / path)})).text for path in paths]
        control = [(await session.call("granted.write", {"path": str(folder / path)})).text for path in paths]
        warned = {warning.text.split(" but ")[0] for warning in session.warnings if warning.server == "w"}

    assert tools == [False] * 5 + [True]
    assert written == ["Read-only file system"] * 5 + ["written"]
    assert control == ["written"] * 6
    assert {f"It can read {folder}/{name}" for name in ("bin", ".venv", "tools", "app", "cwd")} <= warned


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
async def test_confined_server_creates_or_changes_no_program_that_own_servers_will_run(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in (".venv/bin", "dist", "tools"):
        (folder / name).mkdir(parents=True)
    (folder / "tools" / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mine").symlink_to(folder / "tools" / "mine")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    own = {
        "missing": {"command": f"{folder}/.venv/bin/notes"},
        "not-built": {"command": "node", "args": [f"{folder}/dist/index.js"]},
    }
    writer = own_writer(tmp_path)
    paths = [".venv/bin/notes", "dist/index.js", "tools/mine"]
    async with (
        make_host({"w": writer, "granted": {**writer, "writable": ["."]}, **own}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*", "granted.*", "files.*"]) as session,
    ):
        tools = [(await session.call("files.write", {"path": path, "text": ""})).ok for path in paths]
        written = [(await session.call("w.write", {"path": str(folder / path)})).text for path in paths]
        control = [(await session.call("granted.write", {"path": str(folder / path)})).text for path in paths]

    assert tools == [False] * 3
    assert written == ["Read-only file system"] * 3
    assert control == ["written"] * 3


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.parametrize(
    "command",
    [
        *("node {}/server", "node {}/dist/index.js", "{}/.venv/bin/notes", "make -f {}/Makefile", "elixir {}/s.exs"),
        *("mix run {}/s.exs", "rake -f {}/Rakefile", "mvn -f {}/pom.xml", "just -d {} -f {}/justfile", "gradle -p {}"),
        *("nix run {}", "direnv exec {} notes", "conda run -p {} notes", "sudo -u x {}/run", "docker run -v{}:/x y"),
        *("cargo run --manifest-path={}/Cargo.toml", "sh -c 'cd {} && ./run'", "sh -c 'exec ~/run'", "sh -c $HOME/run"),
        *("python -c 'import sys; sys.path.insert(0,\"{}\"); import x'", "node --import file://{}/hook.mjs /opt/x.js"),
        *("env NODE_OPTIONS=--require={}/x.js node /opt/x.js", "python {}/data.db", "{}/folder/../run", "{}/dangling/x"),
    ],
)  # fmt: skip
def test_every_path_that_a_trusted_entry_names_is_read_only(folder: Path, command: str):
    for name in ("Makefile", "run", "pom.xml", "s.exs", "data.db"):
        (folder / name).write_text("")
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "missing")
    argv = shlex.split(command.replace("{}", str(folder)))

    assert str(folder) in read_only_in(folder, Stdio(command=argv[0], args=tuple(argv[1:])))


@pytest.mark.promise("RES-07", "BOX-01")
def test_paths_in_variables_that_load_code_are_read_only_and_data_is_not(folder: Path):
    (folder / "lib").mkdir()
    (folder / "conf.json").write_text("{}")
    program = Stdio(
        command="notes",
        args=(
            "--db",
            f"{folder}/notes.db",
            "--config",
            f"{folder}/conf.json",
            "--url",
            "http://example.org/x",
        ),
        env={"PYTHONPATH": f"/opt/x:{folder}/lib", "NOTES": f"{folder}/notes"},
    )

    instructions = {f"{folder}/{name}" for name in INSTRUCTION_FILES}
    assert {*read_only_in(folder, program)} - instructions == {f"{folder}/lib", f"{folder}/conf.json"}


def read_only_in(folder: Path, program: Stdio) -> list[str]:
    """What nothing confined can change in a folder, because of a server in the user's own list."""
    found = executed_by(program, {"PATH": os.defpath, "HOME": str(folder)})
    return UnconfinedPaths(programs=resolve_with_links(map(Path, found))).read_only_in([str(folder)])


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
async def test_approval_counts_for_sandboxed_sessions_that_are_open(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    write_server(folder)
    (folder / ".mcp.json").write_text("{}")
    path = str(folder / "plugin.py")
    async with (
        make_host({"w": own_writer(tmp_path)}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
    ):
        control = (await session.call("w.write", {"path": path})).text
        control_tool = (await session.call("files.write", {"path": path, "text": ""})).ok
        await approve_project(host, folder, "server.py", "tools.txt")
        written = (await session.call("w.write", {"path": path})).text
        tool = (await session.call("files.write", {"path": path, "text": "evil"})).ok

    assert (control, control_tool) == ("written", True)
    assert (written.splitlines()[-1], tool) == ("Read-only file system", False)


@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("added", ["server", "link in the PATH"])
async def test_program_that_the_user_adds_is_protected_from_servers_that_run_already(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: str
):
    program, in_path = folder / "tools" / "notes.py", tmp_path / "bin"
    program.parent.mkdir()
    program.touch()
    in_path.mkdir()
    monkeypatch.setenv("PATH", f"{in_path}:{os.environ['PATH']}")
    monkeypatch.setattr(unconfined_paths, "_KEEP_SECONDS", 1e-6)
    monkeypatch.setattr(executed_paths, "_KEEP_SECONDS", 1e-6)
    async with (
        make_host({"w": own_writer(tmp_path)}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
    ):
        await host.approvals.on_change()
        control = (await session.call("w.write", {"path": str(program)})).text
        if added == "server":
            user_file = host.settings.servers.user_file
            entry = {"command": sys.executable, "args": [str(program)]}
            user_file.write_text(json.dumps({"mcpServers": {"notes": entry}}))
        else:
            (in_path / "notes").symlink_to(program)
        not_checked = (await session.call("w.write", {"path": str(program)})).text
        await host.approvals.on_change()
        written = (await session.call("w.write", {"path": str(program)})).text
        await host.approvals.on_change()
        again = (await session.call("w.write", {"path": str(program)})).text

    assert (control, not_checked) == ("written", "written")
    assert written.splitlines()[-1] == "Read-only file system"
    assert again == "Read-only file system"  # the server was ended once


@pytest.mark.parametrize("args", [["server.py"], ["-c", "exec(open('server.py').read())"]])
async def test_control_if_only_the_entry_is_approved_the_rewritten_program_runs(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
):
    async def check_nothing(spec: ServerSpec, folder: str, *_: object) -> None:
        return None

    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, *args, "tools.txt")
        (folder / "server.py").write_text(SERVER.replace("ran", "was rewritten"))
        refused = await open_and_call(host, folder)
        monkeypatch.setattr(host.approvals, "check_program", check_nothing)

        assert await open_and_call(host, folder) == "run was rewritten"
    assert "server.py changed" in refused
