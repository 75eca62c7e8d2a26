"""`scripts/setup`: fast if everything is installed, clear if something is missing."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node_peers import REASON, why_skipped

ROOT = Path(__file__).parent.parent
READ_BY_SETUP = (
    "scripts/setup",
    "locks/dev.txt",
    "pyproject.toml",
    "peers/package.json",
    "peers/package-lock.json",
)
STAMPS = ("setup.stamp", "project.stamp")


def test_setup_is_fast_and_silent_if_everything_is_installed() -> None:
    if _stamps(ROOT) != _expected_stamps(ROOT):
        pytest.skip("the environment is out of date: setup would rebuild it under the running tests")

    def seconds() -> float:
        started = time.perf_counter()
        done = subprocess.run(
            [_python(), ROOT / "scripts" / "setup"], capture_output=True, text=True, check=True
        )
        assert done.stdout == ""
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.slow
def test_setup_fails_if_python_packages_cannot_be_installed(tmp_path: Path) -> None:
    tree = _tree(tmp_path)

    done = _setup(tree, PIP_NO_INDEX="1", PIP_FIND_LINKS="")

    assert done.returncode == 1
    assert "setup: Installing the locked Python packages failed (exit code 1)" in done.stderr
    assert "No matching distribution found" in done.stderr
    assert not (tree / ".venv" / "setup.stamp").exists()


def test_setup_reports_what_else_is_missing_and_its_effect(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    _pretend_python_is_installed(tree)

    done = _setup(tree, PATH=str(tmp_path / "empty"))

    assert done.returncode == 0
    assert "setup: npm is missing, so the Node packages are not installed. The type checker" in done.stderr
    if sys.platform == "linux":
        assert "setup: bubblewrap (bwrap) is missing. Servers of sandboxed sessions cannot run" in done.stderr
        assert (
            "setup: chromium is missing. The browser of `holdfast builtin stage` cannot be used"
            in done.stderr
        )


def test_failed_install_is_reported_again_but_not_retried_at_once(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    _pretend_python_is_installed(tree)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("npm", "bwrap", "chromium"):
        (programs / name).write_text(
            f"#!/bin/sh\necho tried >> {tmp_path}/{name}.calls\necho no network\nexit 7\n"
        )
        (programs / name).chmod(0o755)

    first, second = _setup(tree, PATH=str(programs)), _setup(tree, PATH=str(programs))

    assert "Installing the Node packages failed (exit code 7)" in first.stderr
    assert "no network" in first.stderr
    assert "The last attempt was less than an hour ago" in second.stderr
    assert (tmp_path / "npm.calls").read_text() == "tried\n"


def test_locks_name_no_package_index() -> None:
    locks = [*(ROOT / "locks").glob("*.txt"), ROOT / "peers" / "package-lock.json"]

    assert [lock.name for lock in locks if "://" in lock.read_text(encoding="utf-8")] == []


def _tree(folder: Path) -> Path:
    """A copy of the files that `setup` reads, with nothing installed."""
    tree = folder / "tree"
    for name in READ_BY_SETUP:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def _pretend_python_is_installed(tree: Path) -> None:
    (tree / ".venv").mkdir()
    for name, stamp in zip(STAMPS, _expected_stamps(tree), strict=True):
        (tree / ".venv" / name).write_text(stamp)


def _stamps(tree: Path) -> list[str]:
    stamps = (tree / ".venv" / name for name in STAMPS)
    return [stamp.read_text() for stamp in stamps if stamp.exists()]


def _expected_stamps(tree: Path) -> list[str]:
    """The stamps of an up-to-date Python environment."""
    code = (
        "import runpy, sys; setup = runpy.run_path(sys.argv[1])\n"
        "first = setup['_digest'](setup['ROOT'] / 'locks/dev.txt', str(setup['VENV']), setup['platform'].python_version())\n"
        "print(first, setup['_digest'](setup['_packaging'](), first))\n"
    )
    command = [_python(), "-c", code, tree / "scripts" / "setup"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _setup(tree: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_python(), tree / "scripts" / "setup"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def _python() -> str:
    """The Python that created the environment, as used by `make setup`."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


@pytest.mark.parametrize(
    ("is_installed", "is_ci", "reason"), [(False, False, REASON), (True, False, None), (False, True, None)]
)
def test_only_outside_of_ci_missing_node_packages_make_tests_skipped(
    is_installed: bool, is_ci: bool, reason: str | None
) -> None:
    failure = "FileNotFoundError: [Errno 2] No such file: '/home/ann/holdfast/peers/node_modules/.bin/node'"

    assert why_skipped(failure, is_installed=is_installed, is_ci=is_ci) == reason
    assert why_skipped("AssertionError", is_installed=False, is_ci=False) is None
