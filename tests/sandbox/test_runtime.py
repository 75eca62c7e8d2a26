"""What a program needs to read: found from the program alone, and never more than a runtime."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.runtime import Runtime, runtime


def needs(program: Path | str, path: str = "/usr/bin") -> Runtime:
    return runtime(Launch(argv=(str(program),), env={"PATH": path}, cwd="/"))


def executable(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_a_program_of_the_system_needs_nothing_more() -> None:
    found = needs("true")

    assert (Path(found.program).name, found.needs) == ("true", ())


def test_a_lone_program_is_shown_alone(home: Path) -> None:
    program = executable(home / "bin" / "tool")

    assert needs(program) == Runtime(program=str(program), needs=(str(program),))


def test_the_folder_it_lies_in_is_not_shown_even_when_it_looks_like_a_home(home: Path) -> None:
    (home / ".ssh").mkdir()
    program = executable(home / ".ssh" / "tool")

    assert needs(program).needs == (str(program),)


def test_an_environment_of_pythons_brings_its_base(home: Path) -> None:
    base, venv = home / "python", home / "venv"
    python = executable(base / "bin" / "python3.12")
    executable(base / "lib" / "python3.12" / "os.py")
    (venv / "bin").mkdir(parents=True)
    (venv / "lib").mkdir()
    (venv / "bin" / "python").symlink_to(python)
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (venv / ".env").write_text("SECRET=1")

    found = needs(venv / "bin" / "python")

    assert (found.program, set(found.needs)) == (
        str(venv / "bin" / "python"),
        {f"{base}/bin", f"{base}/lib", f"{venv}/bin", f"{venv}/lib", f"{venv}/pyvenv.cfg"},
    )


def test_a_script_brings_its_interpreter_by_path_or_by_name(home: Path) -> None:
    node = executable(home / "node" / "bin" / "node")
    (home / "node" / "include" / "node").mkdir(parents=True)
    (home / "node" / "lib").mkdir()
    by_name = executable(home / "a" / "server", "#!/usr/bin/env node\n")
    by_path = executable(home / "b" / "server", f"#!{node}\n")

    runtimes = {f"{home}/node/bin", f"{home}/node/lib"}
    assert set(needs(by_name, f"{node.parent}:/usr/bin").needs) == {str(by_name), *runtimes}
    assert set(needs(by_path).needs) == {str(by_path), *runtimes}


def test_a_command_of_npm_brings_its_modules_and_no_more(home: Path) -> None:
    modules = home / "app" / "node_modules"
    script = executable(modules / "server" / "dist" / "index.js", "#!/usr/bin/env node\n")
    (modules / ".bin").mkdir()
    (modules / ".bin" / "server").symlink_to("../server/dist/index.js")

    assert script.exists()
    assert needs(modules / ".bin" / "server").needs == (str(modules),)


def test_a_base_that_is_no_runtime_is_not_believed(home: Path) -> None:
    (home / ".ssh").mkdir()
    venv = home / "venv"
    python = executable(venv / "bin" / "python")
    (venv / "pyvenv.cfg").write_text(f"home = {home}/.ssh\n")

    assert needs(python).needs == (str(venv / "bin"), str(venv / "pyvenv.cfg"))


def test_a_chain_of_links_without_end_ends(home: Path) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")

    with pytest.raises(HoldfastError, match="there is no such program"):
        needs(home / "a")


def test_a_folder_that_is_a_link_is_followed_once_and_for_all(home: Path) -> None:
    program = executable(home / "v2" / "tool")
    (home / "current").symlink_to("v2")

    assert needs(home / "current" / "tool").program == str(program)


def test_our_own_python_brings_what_it_needs() -> None:
    found = needs(sys.executable).needs

    assert os.path.realpath(f"{sys.base_prefix}/lib") in found or sys.base_prefix == "/usr"
