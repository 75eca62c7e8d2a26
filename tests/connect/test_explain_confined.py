"""A confined server that fails says what the sandbox hid from it, and which line grants it."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.explain_confined import explain_call, explain_refused_hosts, explain_start
from holdfast.model.process import Confinement
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.sandbox.view import RefusedHost, SandboxView
from tests.connect.conftest import HostFactory, counter_entry
from tests.sandbox.conftest import bwrap  # pyright: ignore[reportUnusedImport] # noqa: F401

pytestmark = pytest.mark.anyio
ROOT = str(Path(__file__).parents[2])


def spec(source: Source = Source.USER, *args: str, **fields: Any) -> ServerSpec:
    return ServerSpec(
        name="s",
        source=source,
        origin="/user.json",
        transport=Stdio(command="x", args=args),
        confinement=Confinement(roots=("/project",)),
        **fields,
    )


@pytest.mark.promise("BOX-07")
@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (Source.USER, 'to allow that, add "readable": ["{path}"] to its entry in /user.json.'),
        (Source.PROJECT, "to allow that, run: holdfast servers approve s --confined --readable {path}"),
        (
            Source.CLIENT,
            (
                "a server that a client brings gets no more than the session's folders. "
                'Configure it in your own list of servers, with "confined": true.'
            ),
        ),
    ],
)
def test_hidden_path_of_the_command_is_named_with_the_line_that_grants_it(
    tmp_path: Path, source: Source, advice: str
):
    hidden = tmp_path / "data.db"
    hidden.touch()
    view = SandboxView(["/project", "/usr"])

    for argument in (str(hidden), f"--db={hidden}"):
        assert explain_start(spec(source, argument), view, "") == (
            f"It runs confined and cannot see {hidden}: {advice.format(path=hidden)}"
        )
    assert explain_start(spec(source, str(hidden)), SandboxView([str(tmp_path)]), "") == ""
    assert explain_start(spec(source, f"{hidden}.missing"), view, "") == ""


@pytest.mark.promise("BOX-07")
@pytest.mark.parametrize(
    "words",
    [
        "Error: Cannot find module '{path}'",
        "python: can't open file '{path}': [Errno 2] No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
        "cat: {path}: No such file",
    ],
)
def test_hidden_path_that_an_error_names_is_found(tmp_path: Path, words: str):
    hidden = tmp_path / "module.js"
    hidden.touch()

    explained = explain_start(spec(), SandboxView(["/project"]), words.format(path=hidden))

    assert explained.startswith(f"It runs confined and cannot see {hidden}: ")


def test_server_cannot_ask_for_private_files_by_its_error(tmp_path: Path):
    secret = tmp_path / ".ssh" / "id_ed25519"
    secret.parent.mkdir()
    secret.touch()

    assert explain_start(spec(), SandboxView(["/project"]), f"cannot open '{secret}'") == ""


@pytest.mark.promise("BOX-07")
@pytest.mark.parametrize(
    "words",
    [
        "npm error getaddrinfo EAI_AGAIN registry.example.org",
        "curl: (6) Could not resolve host: registry.example.org",
        "Failed to resolve 'registry.example.org' ([Errno -2] Name or service not known)",
        "request to https://x failed, reason: getaddrinfo ENOTFOUND registry.example.org",
    ],
)
def test_host_that_could_not_be_resolved_is_named(words: str):
    assert explain_start(spec(), SandboxView(["/project"]), words) == (
        "It runs confined and tried to reach registry.example.org: "
        'to allow that, add "network": ["registry.example.org"] to its entry in /user.json.'
    )


@pytest.mark.promise("BOX-07")
@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("EROFS: read-only file system, open '/project/.git/config.lock'", ".git in its folder"),
        ("error: could not lock config file .git/config: Read-only file system", ".git in its folder"),
        ("OSError: [Errno 30] Read-only file system: '/locked/notes.txt'", "its folder"),
    ],
)
def test_write_to_a_read_only_name_is_named_with_the_grant(written: str, why: str):
    project = spec(Source.PROJECT)
    confined = Confinement(roots=("/project", "/locked"), read_only=("/locked",), writable=(".hg",))
    explained = explain_call(replace(project, confinement=confined), SandboxView(["/project"]), [], written)
    name = ".git" if "git" in why else "."

    assert explained == (
        f"It runs confined and can read {why}, but not change it: to allow that, run: "
        f"holdfast servers approve s --confined --writable .hg --writable {name}"
    )


@pytest.mark.promise("BOX-07")
def test_write_to_another_read_only_path_says_where_the_server_can_write():
    written = "EROFS: read-only file system, open '/packages/309c/dist/memory.jsonl'"
    explained = explain_call(spec(), SandboxView(["/project"]), [], written)

    assert "It can write in /project, and in its own /tmp" in explained
    assert explained.endswith('with "args" or "env" in its entry in /user.json.')
    assert explain_call(spec(), SandboxView(["/project"]), [], "/project/.git is no repository") == ""


@pytest.mark.promise("BOX-07")
def test_granted_host_that_is_refused_is_named_with_the_reason_of_the_proxy():
    reason = "api.example:443 is at 10.0.0.8, a private address. To allow it, change the settings."
    command = "holdfast servers approve s --confined --network"
    refused = [
        RefusedHost(endpoint="other.example:443"),
        RefusedHost(endpoint="api.example:443", reason=reason),
    ]

    assert explain_refused_hosts(spec(Source.PROJECT), refused).splitlines() == [
        f"It runs confined and tried to reach other.example: to allow that, run: {command} other.example",
        f"It runs confined, and may not reach a host that was granted: {reason}",
    ]


@pytest.mark.promise("BOX-07")
def test_failed_call_names_hidden_paths_of_the_entry_but_none_that_the_answer_chose(tmp_path: Path):
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    failed = f"FileNotFoundError: '{data}/stations.txt', '{other}'"
    stranger = spec(Source.PROJECT, f"--data={data}")

    assert explain_call(stranger, SandboxView(["/project"]), [], failed) == (
        f"It runs confined and cannot see {data}: "
        f"to allow that, run: holdfast servers approve s --confined --readable {data}"
    )
    assert explain_call(stranger, SandboxView(["/project"]), [], "no data") == ""


@pytest.mark.promise("BOX-07")
def test_failed_look_up_without_any_grant_says_that_the_network_is_not_allowed():
    failed = "<urlopen error [Errno -2] Name or service not known>"
    granted = replace(spec(), confinement=Confinement(roots=("/project",), network=("one.example",)))
    view = SandboxView(["/project"])

    advice = 'It runs confined and may not use the network: to allow that, add "network": ["HOST"] to its entry in /user.json.'
    assert (explain_call(spec(), view, [], failed), explain_start(spec(), view, failed)) == (advice, advice)
    assert explain_call(granted, view, [], failed) == ""


@pytest.mark.promise("BOX-07")
@pytest.mark.usefixtures("bwrap")
async def test_advice_makes_a_server_start_when_it_is_followed(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    needed = tmp_path / "elsewhere" / "needed.txt"
    needed.parent.mkdir()
    needed.write_text("here")
    script = f"open({str(needed)!r}); import runpy; runpy.run_module('tests.connect.counter_server', run_name='__main__')"
    entry: dict[str, Any] = {**counter_entry(), "args": ["-c", script], "confined": True, "readable": [ROOT]}
    async with make_host({"c": entry}) as host, host.session(cwd=folder) as session:
        (refusal,) = session.refusals
    _, advice = refusal.reason.split('set "readable": ')
    entry["readable"], _ = json.JSONDecoder().raw_decode(advice)
    async with make_host({"c": entry}) as host, host.session(cwd=folder) as session:
        works = (await session.call("c.count")).text

    assert (entry["readable"], works) == ([ROOT, str(needed)], "1")


@pytest.mark.promise("BOX-07")
@pytest.mark.usefixtures("bwrap")
async def test_refused_host_is_named_in_the_failed_start(make_host: HostFactory, folder: Path):
    script = (
        "import os, urllib.request\n"
        "try:\n    urllib.request.urlopen('http://other.example:8080/')\n"
        "except OSError:\n    raise SystemExit('no network')\n"
    )
    entry = {"command": sys.executable, "args": ["-c", script], "confined": True, "network": ["one.example"]}
    async with make_host({"c": entry}) as host, host.session(cwd=folder) as session:
        (refusal,) = session.refusals

    assert (
        "It runs confined and tried to reach other.example:8080: to allow that, set "
        '"network": ["one.example", "other.example:8080"] in its entry in ' in refusal.reason
    )


SCRIPTS: dict[str, Callable[[Path], list[str]]] = {}


def script_case(make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    SCRIPTS[make.__name__.replace("_", " ")] = make
    return make


SERVER = """
import sys
sys.path.insert(0, {root!r})
import {module}
import runpy
runpy.run_module("tests.connect.counter_server", run_name="__main__")
"""


@script_case
def with_a_module_beside_it(folder: Path) -> list[str]:
    (folder / "helper.py").touch()
    (folder / "server.py").write_text(SERVER.format(root=ROOT, module="helper"))
    return [str(folder / "server.py")]


@script_case
def in_a_package_with_a_manifest(folder: Path) -> list[str]:
    (folder / "pyproject.toml").touch()
    (folder / "inner").mkdir()
    (folder / "bin").mkdir()
    (folder / "inner" / "__init__.py").touch()
    (folder / "bin" / "server.py").write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n" + SERVER.format(root=ROOT, module="inner")
    )
    return [str(folder / "bin" / "server.py")]


@script_case
def through_a_link(folder: Path) -> list[str]:
    real = folder / "real"
    real.mkdir()
    arguments = with_a_module_beside_it(real)
    (folder / "server.py").symlink_to(arguments[0])
    return [str(folder / "server.py")]


@pytest.mark.promise("BOX-08")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("case", SCRIPTS)
async def test_files_of_a_script_outside_the_roots_are_visible_by_themselves(
    make_host: HostFactory, folder: Path, tmp_path: Path, case: str
):
    program = tmp_path / "program"
    program.mkdir()
    (tmp_path / "beside.txt").write_text("not part of it")
    arguments = SCRIPTS[case](program)
    entry = {"command": sys.executable, "args": arguments, "confined": True, "readable": [ROOT]}
    async with make_host({"c": entry}) as host, host.session(cwd=folder) as session:
        assert [refusal.reason for refusal in session.refusals] == []
        works = (await session.call("c.count")).text

    assert works == "1"
    assert json.dumps(str(tmp_path)) not in json.dumps(arguments)
