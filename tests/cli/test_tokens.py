import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.gateway.client_tokens import TOKENS_FOLDER, Tokens
from holdfast.gateway.credential import NotAuthenticatedError
from tests.commands import run_holdfast
from tests.store.disks import Ballast, mount, small_disk

__all__ = ["small_disk"]

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(folder / "data")}
    return run_holdfast(*words, env=environ)


@pytest.mark.promise("GW-06")
def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(tmp_path: Path):
    created = run(
        tmp_path, "tokens", "create", "ci", "--trust", "sandboxed", "--tools", "git.log", "--expires", "12h"
    )
    listed = run(tmp_path, "tokens", "list", "--json")
    revoked = run(tmp_path, "tokens", "revoke", "ci")
    left = run(tmp_path, "tokens", "list", "--json")

    records = [
        json.loads(line)["record"]
        for line in run(tmp_path, "audit", "list", "--kind", "token", "--json").stdout.splitlines()
    ]

    token = created.stdout.strip()
    found = json.loads(listed.stdout)
    assert (found["name"], found["trust"], found["tools"], found["mode"]) == (
        "ci",
        "sandboxed",
        ["git.log"],
        "ask",
    )
    assert token.split("_", 2)[2] not in listed.stdout + created.stderr
    assert revoked.stdout == f"Revoked {found['id']} (ci).\n"
    assert left.stdout == ""
    assert [
        (record["outcome"], f"token {found['id']} (ci), by " in record["reason"]) for record in records
    ] == [
        ("created", True),
        ("revoked", True),
    ]
    assert not any(token.split("_", 2)[2] in record["reason"] for record in records)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "x", "--expires", "0d"), "--expires must be a time in the next 100 years"),
        (("create", "x", "--expires", "999999w"), "--expires must be a time in the next 100 years"),
        (
            ("create", "x", "--expires", "9999-12-31T23:59-12:00"),
            "--expires must be a time in the next 100 years",
        ),
        (("create", "x", "--workspace", "nowhere"), "There is no workspace 'nowhere'."),
        (("create", "x", "--mode", "all"), "'all' is not a mode."),
        (("create", "x", "--servers", ""), "--servers is empty."),
        (("create", "x", "--trust", ""), "--trust is empty."),
        (("revoke", "x"), "There is no token 'x'."),
    ],
)
def test_invalid_values_are_errors_that_name_them(tmp_path: Path, words: tuple[str, ...], message: str):
    done = run(tmp_path, "tokens", *words)

    assert (done.returncode, message in done.stderr) == (1, True)
    assert run(tmp_path, "tokens", "list", "--json").stdout == ""


@pytest.mark.slow
@pytest.mark.promise("GW-06")
def test_a_token_like_another_has_all_of_its_limits_but_those_that_are_given(tmp_path: Path):
    limits = (
        "--trust",
        "sandboxed",
        "--user",
        "cid",
        "--servers",
        "files",
        "--tools",
        "files.*",
        "--expires",
        "12h",
    )
    run(tmp_path, "tokens", "create", "cid", *limits)
    old = json.loads(run(tmp_path, "tokens", "list", "--json").stdout)

    created = run(tmp_path, "tokens", "create", "cid", "--like", old["id"], "--mode", "auto")
    new = json.loads(run(tmp_path, "tokens", "list", "--json").stdout.splitlines()[1])
    empty = run(tmp_path, "tokens", "create", "cid", "--like", old["id"], "--tools", "")
    ambiguous = run(tmp_path, "tokens", "revoke", "cid")
    unknown = run(tmp_path, "tokens", "revoke", old["id"], "nope")
    still = [json.loads(line)["id"] for line in run(tmp_path, "tokens", "list", "--json").stdout.splitlines()]
    both = run(tmp_path, "tokens", "revoke", old["id"], new["id"])
    revoked = run(tmp_path, "tokens", "revoke", "cid", "--all")
    listed = run(tmp_path, "tokens", "list")

    changed = {"id", "mode", "created_at"}
    assert {key: new[key] for key in new.keys() - changed} == {key: old[key] for key in old.keys() - changed}
    assert (old["mode"], new["mode"]) == ("ask", "auto")
    assert f"already exist: {old['id']}." in created.stderr
    assert f"leave the option out: then the limit of {old['id']} is used." in empty.stderr
    assert ambiguous.returncode == 1
    assert "2 tokens are named 'cid'" in ambiguous.stderr
    assert (old["id"] in ambiguous.stderr, new["id"] in ambiguous.stderr) == (True, True)
    assert (unknown.returncode, still) == (1, [old["id"], new["id"]])
    assert both.stdout == revoked.stdout == f"Revoked {old['id']} (cid).\nRevoked {new['id']} (cid).\n"
    assert listed.stderr == "Not shown: 2 revoked. To show all: holdfast tokens list --all\n"


def test_a_server_that_does_not_exist_is_reported_when_a_token_names_it(tmp_path: Path):
    created = run(tmp_path, "tokens", "create", "ci", "--servers", "files,slwo")

    assert created.returncode == 0
    assert "There is no server 'slwo' here now." in created.stderr
    assert "'files'" not in created.stderr


def test_the_command_that_lists_the_servers_of_a_token_names_the_folder_of_the_token(tmp_path: Path):
    folder = tmp_path / "blog"
    folder.mkdir()

    created = run(tmp_path, "tokens", "create", "ci", "--servers", "slwo", "--cwd", str(folder))

    assert created.stderr.splitlines()[0].endswith(
        f"To list the servers: holdfast servers list --cwd {folder}"
    )


@pytest.mark.parametrize(
    ("entry", "options", "is_warned"),
    [
        ({}, ("--trust", "sandboxed"), True),
        ({}, ("--trust", "direct"), False),
        ({}, (), False),
        ({"url": "https://mcp.example.org/", "trust_level": "sandboxed"}, ("--trust", "sandboxed"), False),
        ({"url": "https://mcp.example.org/"}, ("--trust", "sandboxed", "--servers", "notes"), True),
    ],
)
def test_a_trust_that_leaves_no_server_is_reported_when_a_token_has_it(
    tmp_path: Path, entry: dict[str, str], options: tuple[str, ...], *, is_warned: bool
):
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"notes": entry or {"command": "true"}}}))
    environ = {
        **os.environ,
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(servers),
    }
    created = run_holdfast("tokens", "create", "ci", *options, cwd=tmp_path, env=environ)

    warning = "Sessions with trust sandboxed get no server here now. To see why: holdfast servers explain notes --trust sandboxed"
    assert (created.returncode, warning in created.stderr) == (0, is_warned)


@pytest.mark.promise("GW-06")
def test_a_token_can_be_revoked_on_a_full_disk(small_disk: Path):
    (small_disk / "data").mkdir(mode=0o700)
    token = run(small_disk, "tokens", "create", "ci").stdout.strip()
    tokens = Tokens(small_disk / "data" / TOKENS_FOLDER)
    name = tokens.authenticate(token).name
    Ballast(small_disk).take_all()

    revoked = run(small_disk, "tokens", "revoke", "ci")

    assert (name, revoked.returncode, revoked.stdout.startswith("Revoked ")) == ("ci", 0, True)
    assert "The revocation is not in the audit: No space is left" in revoked.stderr
    with pytest.raises(NotAuthenticatedError):
        tokens.authenticate(token)


def test_if_a_token_cannot_be_revoked_the_error_says_that_it_is_still_valid(tmp_path: Path):
    run(tmp_path, "tokens", "create", "ci")
    data = tmp_path / "data"
    mount("--bind", str(data), str(data))
    try:
        mount("-o", "remount,bind,ro", str(data))
        failed = run(tmp_path, "tokens", "revoke", "ci")
    finally:
        subprocess.run(["umount", str(data)], check=True)

    assert (failed.returncode, failed.stdout) == (1, "")
    assert "was not revoked and is still valid" in failed.stderr
    assert "stop `holdfast up`" in failed.stderr
