"""`scripts/setup` on its own: quick when all is there, plain when something is not."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
READ_BY_SETUP = (
    "scripts/setup",
    "locks/dev.txt",
    "pyproject.toml",
    "peers/package.json",
    "peers/package-lock.json",
)


def test_with_nothing_to_do_it_is_quick_and_quiet() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        done = subprocess.run(
            [_python(), ROOT / "scripts" / "setup"], capture_output=True, text=True, check=True
        )
        assert done.stdout == ""
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.5


def test_python_packages_that_cannot_be_installed_are_fatal_and_told(tmp_path: Path) -> None:
    tree = _tree(tmp_path)

    done = _setup(tree, PIP_NO_INDEX="1", PIP_FIND_LINKS="")

    assert done.returncode == 1
    assert "setup: Installing the locked Python packages failed (exit code 1)" in done.stderr
    assert "No matching distribution found" in done.stderr
    assert not (tree / ".venv" / "setup.stamp").exists()


def test_what_cannot_be_installed_beside_is_told_with_what_is_unavailable(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    _pretend_python_is_installed(tree)

    done = _setup(tree, PATH=str(tmp_path / "empty"))

    assert done.returncode == 0
    assert "setup: npm is missing, so the Node peers are not installed. The type checker" in done.stderr
    if sys.platform == "linux":
        assert "setup: bubblewrap (bwrap) is missing. Servers of sandboxed sessions cannot run" in done.stderr


def test_a_failed_install_is_not_tried_again_at_once_but_still_told(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    _pretend_python_is_installed(tree)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("npm", "bwrap"):
        (programs / name).write_text(
            f"#!/bin/sh\necho tried >> {tmp_path}/{name}.calls\necho no network\nexit 7\n"
        )
        (programs / name).chmod(0o755)

    first, second = _setup(tree, PATH=str(programs)), _setup(tree, PATH=str(programs))

    assert "Installing the Node peers failed (exit code 7)" in first.stderr
    assert "no network" in first.stderr
    assert "could not be installed less than an hour ago" in second.stderr
    assert (tmp_path / "npm.calls").read_text() == "tried\n"


def test_no_lock_names_a_package_index() -> None:
    locks = [*(ROOT / "locks").glob("*.txt"), ROOT / "peers" / "package-lock.json"]

    assert [lock.name for lock in locks if "://" in lock.read_text(encoding="utf-8")] == []


def _tree(folder: Path) -> Path:
    """What `setup` reads, somewhere else, with nothing installed."""
    tree = folder / "tree"
    for name in READ_BY_SETUP:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def _pretend_python_is_installed(tree: Path) -> None:
    (tree / ".venv").mkdir()
    code = (
        "import runpy, sys; setup = runpy.run_path(sys.argv[1])\n"
        "first = setup['_digest'](setup['ROOT'] / 'locks/dev.txt', str(setup['VENV']), setup['platform'].python_version())\n"
        "(setup['VENV'] / 'setup.stamp').write_text(first)\n"
        "(setup['VENV'] / 'project.stamp').write_text(setup['_digest'](setup['_packaging'](), first))\n"
    )
    subprocess.run([_python(), "-c", code, tree / "scripts" / "setup"], check=True)


def _setup(tree: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_python(), tree / "scripts" / "setup"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def _python() -> str:
    """The Python that the environment was made from, as `make setup` uses it."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
