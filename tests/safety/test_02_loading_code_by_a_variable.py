"""Attack 2: a project's or client's config sets a variable that loads code into the server or runs another program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.resolution import Stage
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


def trap(folder: Path) -> Path:
    """Write a `sitecustomize` that creates a file in every Python with this folder in its path."""
    mark = folder / "mark"
    (folder / "sitecustomize.py").write_text(f"open({str(mark)!r}, 'w').close()")
    return mark


def client_server(folder: Path) -> Any:
    """A client's server with the trap in its `PYTHONPATH`."""
    entry = counter_entry()
    variables = {**entry["env"], "PYTHONPATH": f"{folder}{os.pathsep}{entry['env']['PYTHONPATH']}"}
    return {
        "name": "c",
        "command": sys.executable,
        "args": entry["args"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }


@pytest.mark.promise("CTX-04")
async def test_server_is_refused_and_no_code_is_loaded(make_host: HostFactory, tmp_path: Path):
    mark = trap(tmp_path)
    async with make_host({}) as host:
        session = await host.open(
            OpenOptions(cwd=tmp_path, trust=Trust.SANDBOXED, client_servers=(client_server(tmp_path),))
        )
        await session.wait_ready()
        (refusal,) = [refusal for refusal in session.refusals if refusal.server == "c"]
        await session.close()

    assert refusal.stage is Stage.ADMIT
    assert refusal.reason.startswith(
        "env: PYTHONPATH may not come from the client's request in a sandboxed session:"
    )
    assert not mark.exists()


@pytest.mark.promise("CTX-04")
@pytest.mark.parametrize("name", ["TMPDIR", "Temp"])
async def test_project_cannot_choose_where_compiled_code_is_kept(
    make_host: HostFactory, tmp_path: Path, name: str
):
    # Like `tsx`, which keeps compiled sources in the folder of temporary files, and runs them.
    program = "import os, runpy, sys; runpy.run_path(os.environ[sys.argv[1]] + '/compiled.py')"
    (tmp_path / "compiled.py").write_text("open('ran', 'w')")
    entry = {"command": sys.executable, "args": ["-c", program, name], "env": {name: "."}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"p": entry}}))
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals
    ran = (tmp_path / "ran").exists()
    async with make_host({"own": {**entry, "cwd": str(tmp_path)}}) as host, host.session(cwd=tmp_path):
        pass  # the control

    assert (refusal.server, refusal.stage) == ("p", Stage.VALIDATE)
    assert "programs keep compiled code in that folder, and run it instead of its source" in refusal.reason
    assert not ran
    assert (tmp_path / "ran").exists()


@pytest.mark.promise("CTX-04")
@pytest.mark.parametrize(("name", "value"), [("COMPILER_PATH", "."), ("GCC_EXEC_PREFIX", "./")])
async def test_project_cannot_choose_the_programs_of_a_compiler(
    make_host: HostFactory, tmp_path: Path, name: str, value: str
):
    # Like a server that compiles an extension when it starts.
    program = (
        "import subprocess; subprocess.run(['gcc', '-xassembler', '-c', '/dev/null', '-o', '/dev/null'])"
    )
    assembler = tmp_path / "as"
    assembler.write_text("#!/bin/sh\ntouch ran")
    assembler.chmod(0o755)
    entry = {"command": sys.executable, "args": ["-c", program], "env": {name: value}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"p": entry}}))
    async with make_host({}) as host, host.session(cwd=tmp_path) as session:
        (refusal,) = session.refusals
    ran = (tmp_path / "ran").exists()
    async with make_host({"own": {**entry, "cwd": str(tmp_path)}}) as host, host.session(cwd=tmp_path):
        pass  # the control

    assert (refusal.server, refusal.stage) == ("p", Stage.VALIDATE)
    assert f"env: {name} " in refusal.reason
    assert not ran
    assert (tmp_path / "ran").exists()


@pytest.mark.promise("CTX-04")
async def test_control_in_a_direct_session_the_code_of_the_users_own_editor_is_loaded(
    make_host: HostFactory, tmp_path: Path
):
    mark = trap(tmp_path)
    async with make_host({}) as host:
        session = await host.open(OpenOptions(cwd=tmp_path, client_servers=(client_server(tmp_path),)))
        await session.wait_ready()
        await session.close()

    assert mark.exists()


VARIABLES = {
    "_PYTHON_SYSCONFIGDATA_NAME": "trap",
    "_PYTHON_PROJECT_BASE": "/tmp",
    "__PYTHON_ANYTHING": "x",
    "COVERAGE_PROCESS_START": "x",
    "NAPI_RS_NATIVE_LIBRARY_PATH": "./x.node",
}


@pytest.mark.promise("CTX-04")
async def test_undocumented_variables_of_interpreters_are_refused(make_host: HostFactory, tmp_path: Path):
    servers = {name: {"command": "python3", "env": {name: value}} for name, value in VARIABLES.items()}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    async with make_host({}) as host:
        _, resolution = await host.plan(OpenOptions(cwd=tmp_path))

    assert {refusal.server: refusal.stage for refusal in resolution.refusals} == dict.fromkeys(
        VARIABLES, Stage.VALIDATE
    )


def test_control_such_a_variable_loads_a_module_of_the_current_folder(tmp_path: Path):
    mark = tmp_path / "mark"
    (tmp_path / "trap.py").write_text(f"open({str(mark)!r}, 'w').close()\nbuild_time_vars = {{}}")
    subprocess.run(
        [sys.executable, "-S", "-c", "import sysconfig; sysconfig.get_config_vars()"],
        cwd=tmp_path,
        env={"_PYTHON_SYSCONFIGDATA_NAME": "trap"},
        check=False,
    )

    assert mark.exists()
