"""Which paths a program needs: found from the program alone, and never more than its runtime."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap.runtime import NO_UNTRUSTED, ProgramRuntime, UntrustedFolders, find_runtime
from holdfast.sandbox.opened_path import PathOpener


def runtime_of(program: Path | str, path: str = "/usr/bin") -> ProgramRuntime:
    with ExitStack() as opened:
        return find_runtime(
            ProcessSpec(argv=(str(program),), env={"PATH": path}, cwd="/"), NO_UNTRUSTED, opened
        )


def executable(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_system_program_needs_no_other_paths() -> None:
    found = runtime_of("true")

    assert (Path(found.program).name, found.paths) == ("true", ())


def test_single_program_needs_only_its_own_file(home: Path) -> None:
    program = executable(home / "bin" / "tool")

    found = runtime_of(program)

    assert (found.program, found.paths) == (str(program), (str(program),))


def test_folder_of_a_single_program_is_not_included(home: Path) -> None:
    (home / ".ssh").mkdir()
    program = executable(home / ".ssh" / "tool")

    assert runtime_of(program).paths == (str(program),)


def test_python_environment_includes_its_base_installation(home: Path) -> None:
    base, venv = home / "python", home / "venv"
    python = executable(base / "bin" / "python3.12")
    executable(base / "lib" / "python3.12" / "os.py")
    (venv / "bin").mkdir(parents=True)
    (venv / "lib").mkdir()
    (venv / "bin" / "python").symlink_to(python)
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (venv / ".env").write_text("SECRET=1")

    found = runtime_of(venv / "bin" / "python")

    assert (found.program, set(found.paths)) == (
        str(venv / "bin" / "python"),
        {f"{base}/bin", f"{base}/lib", f"{venv}/bin", f"{venv}/lib", f"{venv}/pyvenv.cfg"},
    )


def test_script_includes_its_interpreter(home: Path) -> None:
    node = executable(home / "node" / "bin" / "node")
    (home / "node" / "include" / "node").mkdir(parents=True)
    (home / "node" / "lib").mkdir()
    by_name = executable(home / "a" / "server", "#!/usr/bin/env node\n")
    by_path = executable(home / "b" / "server", f"#!{node}\n")

    runtimes = {f"{home}/node/bin", f"{home}/node/lib"}
    assert set(runtime_of(by_name, f"{node.parent}:/usr/bin").paths) == {str(by_name), *runtimes}
    assert set(runtime_of(by_path).paths) == {str(by_path), *runtimes}


def test_npm_command_includes_its_node_modules_only(home: Path) -> None:
    modules = home / "app" / "node_modules"
    script = executable(modules / "server" / "dist" / "index.js", "#!/usr/bin/env node\n")
    (modules / ".bin").mkdir()
    (modules / ".bin" / "server").symlink_to("../server/dist/index.js")

    assert script.exists()
    assert runtime_of(modules / ".bin" / "server").paths == (str(modules),)


def test_base_that_is_not_a_runtime_is_not_included(home: Path) -> None:
    (home / ".ssh").mkdir()
    venv = home / "venv"
    python = executable(venv / "bin" / "python")
    (venv / "pyvenv.cfg").write_text(f"home = {home}/.ssh\n")

    assert runtime_of(python).paths == (str(venv / "bin"), str(venv / "pyvenv.cfg"))


def test_link_loop_is_refused(home: Path) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")

    with pytest.raises(HoldfastError, match="there is no such program"):
        runtime_of(home / "a")


def test_linked_folder_is_replaced_by_its_real_path(home: Path) -> None:
    program = executable(home / "v2" / "tool")
    (home / "current").symlink_to("v2")

    assert runtime_of(home / "current" / "tool").program == str(program)


def test_own_python_includes_its_library() -> None:
    found = runtime_of(sys.executable).paths

    assert os.path.realpath(f"{sys.base_prefix}/lib") in found or sys.base_prefix == "/usr"


@pytest.mark.parametrize(
    ("first_line", "expected"),
    [
        ("#!/usr/bin/env node", {"node"}),
        ("#!/usr/bin/env -S node --no-warnings", {"node"}),
        ("#!/cache/bin/python", {"python3"}),
        ("#!/bin/sh", {"node", "python3"}),
        ("\x7fELF", {"node", "python3"}),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_a_program_in_a_root_gets_only_the_interpreter_that_it_names(
    home: Path, first_line: str, expected: set[str], *, linked: bool
) -> None:
    root, tools = home / "package", home / "tools"
    program = executable(root / "dist" / "index.js", f"{first_line}\n")
    interpreters = {name: str(executable(tools / name)) for name in ("node", "python3")}
    if linked:
        (root / ".bin").mkdir()
        (root / ".bin" / "server").symlink_to("../dist/index.js")
        program = root / ".bin" / "server"

    found = _runtime_in_root(program, root, str(tools))

    assert {name for name, path in interpreters.items() if path in found.paths} == expected


def test_a_link_out_of_the_root_does_not_choose_the_interpreter(home: Path) -> None:
    root, tools = home / "package", home / "tools"
    root.mkdir()
    (root / "server").symlink_to(executable(home / "elsewhere", "#!/usr/bin/env node\n"))
    interpreters = [str(executable(tools / name)) for name in ("node", "python3")]

    found = _runtime_in_root(root / "server", root, str(tools))

    assert [path for path in interpreters if path in found.paths] == interpreters


def _runtime_in_root(program: Path, root: Path, path: str) -> ProgramRuntime:
    with ExitStack() as opened:
        identity = PathOpener(opened).open(str(root), links="follow").identity
        spec = ProcessSpec(argv=(str(program),), env={"PATH": path}, cwd="/")
        return find_runtime(spec, UntrustedFolders(own={identity: str(root)}), opened)
