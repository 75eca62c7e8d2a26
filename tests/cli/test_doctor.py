import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.cli.doctor_checks import check_health
from holdfast.sandbox.escape_probe_runner import ESCAPE_PROBES
from tests.cli.test_sessions import environment, run
from tests.commands import run_holdfast

pytestmark = pytest.mark.skipif(
    not shutil.which("bwrap"), reason="needs bubblewrap, and says so where it is missing"
)


def doctor(*words: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return run_holdfast("doctor", *words, env={**os.environ, "PATH": path})


@pytest.mark.promise("BOX-04")
def test_json_lists_the_result_of_every_probe() -> None:
    done = doctor("--json")
    found = json.loads(done.stdout)

    (sandbox,) = found["sandboxes"]
    assert (done.returncode, found["passed"], sandbox["sandbox"]) == (0, True, "bwrap")
    assert [(result["probe"], result["stopped"]) for result in sandbox["results"]] == [
        (probe, True) for probe in ESCAPE_PROBES
    ]


@pytest.mark.promise("BOX-04")
def test_doctor_prints_a_table_and_a_verdict() -> None:
    lines = doctor().stdout.splitlines()

    assert lines[0].split() == ["check", "status", "detail"]
    assert "bwrap    read a file outside its roots               stopped" in map(str.rstrip, lines)
    assert f"bwrap: all {len(ESCAPE_PROBES)} attempts were stopped." in lines


@pytest.mark.promise("BOX-04", "LNK-11")
def test_without_a_sandbox_doctor_says_what_to_install_and_exits_with_1() -> None:
    done = doctor(path="/nowhere")

    assert done.returncode == 1
    assert (
        "bwrap: does not work, so confined servers are refused. bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
        in done.stdout.splitlines()
    )


@pytest.mark.slow
@pytest.mark.promise("BOX-05")
def test_a_container_engine_is_tested_too() -> None:
    done = doctor("--engine", "podman", "--image", "none", "--json")
    sandbox = json.loads(done.stdout)["sandboxes"][1]

    assert (done.returncode, sandbox["sandbox"], sandbox["works"]) == (1, "podman", False)


def checks(
    home: Path, cwd: Path | None = None, **variables: str
) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code of the doctor, and the status and detail of its checks, by name."""
    done = run_holdfast("doctor", "--json", cwd=cwd or home, env={**environment(home), **variables})
    found: dict[str, list[tuple[str, str]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        found.setdefault(check["name"], []).append((check["status"], check["detail"]))
    return done.returncode, found


@pytest.mark.slow
def test_doctor_checks_the_installation(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / ".mcp.json").write_text('{"mcpServers": {"notes": {"command": "notes-server"}}}')
    run(home, "call", "--keep", "files.list", cwd=project)
    run(home, "workspaces", "add", str(project))
    code, found = checks(home, project)

    assert code == 0
    assert [found[name][0][0] for name in ("settings", "data folder", "disk", "store", "workspaces")] == [
        "ok"
    ] * 5
    assert found["store"][0][1].startswith("1 session, ")
    assert [status for status, _ in found["servers"]] == ["ok", "warning"]
    assert found["servers"][1][1].startswith("notes: ")


@pytest.mark.parametrize("broken", ["settings", "store", "workspaces", "data folder"])
def test_check_fails_if_something_is_broken(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    workspaces = tmp_path / "data" / "workspaces"
    workspaces.mkdir(parents=True)
    (tmp_path / "data").chmod(0o700)
    match broken:
        case "settings":
            (tmp_path / "config.toml").write_text("nonsense = 1")
        case "store":
            (tmp_path / "data" / "holdfast.db").write_bytes(b"nonsense" * 1000)
        case "workspaces":
            (workspaces / "blog.toml").write_text("nonsense = 1")
        case _:
            (tmp_path / "data").chmod(0o777)

    statuses = {check.name: check.status for check in check_health() if check.status == "failed"}
    assert statuses.get(broken) == "failed"


def test_an_approval_that_cannot_be_read_does_not_stop_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    check_health()  # creates the store
    with closing(sqlite3.connect(tmp_path / "data" / "holdfast.db", isolation_level=None)) as db:
        db.execute(
            "INSERT INTO approvals VALUES ('[\"nonsense', 'hash', 'someone', 0), ('5', 'hash', 'someone', 0)"
        )

    (approvals,) = (check for check in check_health() if check.name == "approvals")

    assert (approvals.status, approvals.detail) == ("ok", "Approved servers of projects: 0.")


def test_two_mistakes_in_the_settings_are_one_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "config.toml").write_text('nonsense = 1\n[log]\nlevel = "loud"\n')

    (settings,) = check_health()

    assert "\n" not in settings.detail
    assert ("nonsense" in settings.detail, "loud" in settings.detail) == (True, True)
