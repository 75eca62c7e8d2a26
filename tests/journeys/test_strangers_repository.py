"""A stranger's repository: its MCP servers run in a real sandbox after one answer."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.host.host import Host
from holdfast.model.trust import Trust
from tests.commands import run_holdfast
from tests.host.test_packages import serve_registry, write_stand_ins
from tests.journeys.editor import editor, environment
from tests.journeys.terminal import Terminal
from tests.journeys.terminal import terminal as open_terminal

pytestmark = pytest.mark.usefixtures("bwrap")

READY = "› "
QUESTION = "decide later:"
SERVER = Path(__file__).with_name("strangers_server.py")


def terminal(
    home: Path, folder: Path, environ: Mapping[str, str] | None = None
) -> AbstractContextManager[Terminal]:
    """A chat that waits for its servers, however busy the machine is."""
    return open_terminal(home, folder, environ={"HOLDFAST_LINKS_WAIT_SECONDS": "60", **(environ or {})})


class Repository:
    """A clone of a stranger's repository, and a user's commands in it."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.secret = home.parent / "secret.txt"
        self.secret.write_text("canary")
        shutil.copy(SERVER, folder / "server.py")
        self.write(command=sys.executable, args=["server.py"])

    def write(self, **entry: Any) -> None:
        (self.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"stranger": entry}}))

    def run(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_holdfast(*words, cwd=self.folder, env={**environment(self.home), **variables})

    def call(self, tool: str, *words: str, **arguments: str) -> str:
        """What a tool returned, or why it was not called, as `holdfast call` prints it."""
        done = self.run("call", f"stranger.{tool}", json.dumps(arguments), *words)
        return json.loads(done.stdout)["result"] if done.returncode == 0 else done.stderr

    def perform(self, *calls: tuple[str, dict[str, str]], trust: Trust | None = None) -> list[Any]:
        """What tools returned, in one session of this process: that is faster than several commands."""

        async def work() -> list[Any]:
            loaded = settings.load(self.home / "config.toml", environment(self.home))
            async with Host(settings=loaded) as host, host.session(cwd=self.folder, trust=trust) as session:
                return [(await session.call(f"stranger.{tool}", given)).data for tool, given in calls]

        return asyncio.run(work())

    def look(self, trust: Trust | None = None) -> tuple[dict[str, str], str]:
        """The trust that the server was told, and what it can read of the secret."""
        told, peeked = self.perform(("told", {}), ("peek", {"path": str(self.secret)}), trust=trust)
        return {key: told[key] for key in ("environment", "request")}, peeked["result"]


@pytest.fixture
def clone(home: Path, cwd: Path) -> Repository:
    return Repository(home, cwd)


@pytest.mark.slow
@pytest.mark.promise("RES-05", "RES-07", "RES-14")
def test_in_a_new_workspace_the_advice_of_the_refusal_makes_the_servers_run_confined(clone: Repository):
    clone.run("workspaces", "add", str(clone.folder))
    refused = clone.call("told")
    approved = clone.run("servers", "approve", "--confined")

    assert "To review it, run: holdfast servers approve" in refused
    assert "  approved, confined" in approved.stdout
    assert clone.look() == ({"environment": "sandboxed", "request": "sandboxed"}, "FileNotFoundError")
    assert clone.call("leave", text="mine") == "written"
    assert (clone.folder / "left.txt").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.promise("RES-14", "CTX-11")
def test_in_a_direct_session_it_is_confined_too_and_with_the_users_rights_it_is_not(clone: Repository):
    clone.run("servers", "approve", "--confined")
    confined = clone.look()
    switched = clone.run("servers", "approve", "stranger", "--direct").stdout
    direct = clone.look()
    sandboxed = clone.call("told", "--trust", "sandboxed")
    back = clone.run("servers", "approve", "stranger", "--confined").stdout

    assert confined == ({"environment": "sandboxed", "request": "sandboxed"}, "FileNotFoundError")
    assert direct == ({"environment": "direct", "request": "direct"}, "canary")
    assert ("  approved, with your rights" in switched, "  approved, confined" in back) == (True, True)
    assert "run: holdfast servers approve --trust sandboxed stranger --confined" in sandboxed
    assert clone.look(Trust.SANDBOXED)[0]["environment"] == "sandboxed"


@pytest.mark.promise("RES-07")
def test_at_the_start_of_a_chat_one_key_runs_them_confined_and_it_asks_once(clone: Repository):
    with terminal(clone.home, clone.folder) as screen:
        shown = screen.until(QUESTION)
        screen.type("c\n")
        banner = screen.until(READY)
        screen.type("\x04")
        screen.end()
    with terminal(clone.home, clone.folder) as screen:
        again = screen.until(READY)
        screen.type("\x04")
        screen.end()

    assert ('"server.py"' in shown, "with your rights: it can do everything that you can" in shown) == (
        True,
        True,
    )
    assert ("approved, confined" in banner, "stranger (4 tools)" in banner) == (True, True)
    assert ("decide later" in again, "stranger (4 tools)" in again) == (False, True)
    assert clone.look()[0]["environment"] == "sandboxed"


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_a_no_in_the_chat_is_remembered_until_the_server_is_reviewed_again(clone: Repository):
    with terminal(clone.home, clone.folder) as screen:
        screen.until(QUESTION)
        screen.type("n\n")
        first = screen.until(READY)
        screen.type("\x04")
        screen.end()
    with terminal(clone.home, clone.folder) as screen:
        again = screen.until(READY)
        screen.type("\x04")
        screen.end()

    assert ("declined" in first, "decide later" in again) == (True, False)
    assert "You declined it. To review it again, run: holdfast servers approve stranger" in clone.call("told")
    assert "  approved, confined" in clone.run("servers", "approve", "stranger", "--confined").stdout
    assert clone.look()[0]["environment"] == "sandboxed"


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_ctrl_c_in_the_review_skips_the_rest_and_a_later_review_asks_again(clone: Repository):
    entry = {"command": "./missing"}
    (clone.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"first": entry, "second": entry}}))

    with terminal(clone.home, clone.folder) as screen:
        screen.until(QUESTION)
        screen.type("\x03")
        skipped = screen.until(READY)
        screen.line("/why first")
        screen.until("type: /approve")
        screen.line("/approve")
        for _ in range(2):
            screen.until(QUESTION)
            screen.type("n\n")
        reviewed = screen.until(READY)
        screen.type("\x04")
        screen.end()

    assert (
        "holdfast chat --resume sess_" in reviewed
    )  # without an id, it would be another session: this one has no prompt
    assert ('"second"' in skipped, QUESTION in skipped) == (True, False)
    assert "type /approve to review the project's servers in this chat" in skipped


@pytest.mark.promise("RES-07")
def test_the_review_shows_what_runs_what_it_sees_and_which_values_it_gets(clone: Repository, tmp_path: Path):
    data = tmp_path / "data set"
    data.mkdir()
    clone.write(
        command=sys.executable,
        args=["server.py"],
        env={"REGION": "${REGION}", "KEY": "${API_KEY}"},
        network=["api.example.org"],
        readable=[str(data)],
    )
    variables = {"REGION": "north", "API_KEY": "a1B2c3D4e5F6g7H8i9J0"}
    with terminal(clone.home, clone.folder, environ=variables) as screen:
        seen = screen.until(QUESTION)
        screen.type("\n")
        screen.until(READY)
        screen.type("\x04")
        screen.end()
    shown = clone.run("servers", "approve", "--confined", **variables).stdout
    prefix = Path(sys.prefix).resolve()

    assert 'uses:      API_KEY = [masked], REGION = "north" from your environment' in seen
    assert "uses:      API_KEY, REGION from your environment" in shown, "a script's output may be logged"
    assert (
        f"runs:      {json.dumps(sys.executable)}, which is {json.dumps(os.path.realpath(sys.executable))}"
        in shown
    )
    assert 'network:   "api.example.org"' in shown
    assert f"can read:  {json.dumps(str(data))}" in shown
    assert f"also sees: {json.dumps(str(prefix / 'bin'))}" in shown
    assert json.dumps(str(Path(__file__).parents[2] / "src")) in shown, "an editable install"


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_after_a_change_it_does_not_run_and_the_review_shows_the_difference(clone: Repository):
    clone.write(command=sys.executable, args=["server.py"], env={"REGION": "north", "API_TOKEN": "first"})
    clone.run("servers", "approve", "--confined")
    variables = {"REGION": "south", "API_TOKEN": "second"}
    clone.write(command=sys.executable, args=["server.py", "--all"], env=variables, network=["evil.example"])
    refused = clone.call("told")
    review = clone.run("servers", "approve", "--confined").stdout.splitlines()

    assert "It is not approved, or has changed since you approved it" in refused
    start = review.index("  since you approved it, the entry changed:")
    changed = [line.strip() for line in review[start + 1 :] if line.strip()[:1] in ("+", "-")]
    assert changed == [
        '-env:       REGION = "north"',
        '+           "--all"',
        '+env:       REGION = "south"',
        '+network:   "evil.example"',
    ]


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
def test_a_start_mounts_nothing_that_the_approval_did_not_show(clone: Repository, tmp_path: Path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    other = Path(os.path.realpath(sys.executable))
    variables = {"PATH": f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    clone.write(command="python", args=["server.py"])
    clone.run("servers", "approve", "--confined", **variables)
    before = clone.run("call", "stranger.told", **variables)
    (bin_folder / "python").symlink_to(other)  # another program takes its place in the PATH
    after = clone.run("call", "stranger.told", **variables)
    review = clone.run("servers", "approve", "stranger", **variables)
    again = clone.run("servers", "approve", "stranger", "--confined", **variables)

    assert '"environment":"sandboxed"' in before.stdout
    assert f"its program also needs '{bin_folder}/python', which you have not approved" in after.stderr
    assert (review.returncode, "approved, confined" in review.stdout) == (1, False), "it needs a decision"
    assert "run: holdfast servers approve stranger --confined" in review.stdout
    assert f'also sees: "{bin_folder}/python"' in again.stdout


@pytest.mark.slow
@pytest.mark.promise("RES-07")
def test_paths_and_hosts_can_be_granted_with_the_approval(clone: Repository):
    clone.run("servers", "approve", "--confined")
    _, hidden = clone.look()
    clone.run("servers", "approve", "stranger", "--readable", str(clone.secret), "--network", "api.example")
    listed = json.loads(clone.run("servers", "approvals", "--json").stdout.splitlines()[0])
    explained = clone.run("servers", "explain", "stranger").stdout

    assert (hidden, clone.look()[1]) == ("FileNotFoundError", "canary")
    assert (listed["network"], listed["readable"]) == (["api.example"], [str(clone.secret)])
    assert f'  can read:  "{clone.secret}"\n  program:   "server.py"\n' in explained
    assert f"gets stranger: confined, network: api.example, can read: {clone.secret}." in explained
    assert (listed["server"], listed["approved"], listed["audit"]) == (
        "stranger",
        "the server, confined",
        "recorded",
    )


@pytest.mark.promise("RES-07")
def test_a_revoked_server_does_not_run(clone: Repository):
    clone.run("servers", "approve", "--confined")
    clone.run("servers", "revoke", "stranger")

    assert "It is not approved, or has changed since you approved it" in clone.call("told")


@pytest.mark.promise("BOX-08")
def test_package_is_fetched_for_the_approval_and_only_as_approved_it_runs(clone: Repository, tmp_path: Path):
    clone.write(command="npx", args=["-y", "fetched@1.0.0"])
    with serve_registry() as registry:
        variables = {
            "PATH": write_stand_ins(tmp_path / "bin"),
            "NPM_CONFIG_REGISTRY": registry.url,
            "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
            "HOLDFAST_SERVERS_REACHABLE": "127.0.0.1",
        }
        denied = clone.run("servers", "approve", "--confined", **variables)
        with terminal(clone.home, clone.folder, environ=variables) as screen:
            screen.until(QUESTION)
            screen.type("c\n")
            fetching = screen.until(f'Fetch packages for this server from "{registry.host}"? [y/N]')
            screen.type("y\n")
            shown = screen.until("Allow this program too? [y/N]")
            screen.type("y\n")
            banner = screen.until(READY)
            screen.type("\x04")
            screen.end()
        works = clone.run("call", "stranger.told", **variables)
        explained = clone.run("servers", "explain", "stranger", **variables).stdout
        fetched = [*registry.requests]
        for record in (tmp_path / "packages").glob("*.json"):
            record.unlink()
        registry.script += "# changed\n"
        changed = clone.run("call", "stranger.told", **variables)

    assert f"tried to reach {registry.host}" in denied.stdout
    assert "egress" not in fetching + denied.stderr, "the question replaces the log line"
    for text in (shown, explained):
        assert ('package:   version "1.0.0", integrity ' in text, "also sees: " in text) == (True, True)
    assert ("approved, confined" in banner, "stranger (4 tools)" in banner) == (True, True)
    assert ('"environment":"sandboxed"' in works.stdout, fetched) == (True, ["/fetched@1.0.0"])
    assert "is not the one that you approved: fetched 1.0.0 has other files now" in changed.stderr


@pytest.mark.promise("BOX-08")
@pytest.mark.parametrize("names_file", [False, True])
def test_package_uses_its_compiled_modules_unless_it_runs_files_of_the_project(
    clone: Repository, tmp_path: Path, names_file: bool
):
    named = "server.py" if names_file else "host.example"
    clone.write(command="npx", args=["-y", "fetched@1.0.0", named])
    with serve_registry() as registry:
        registry.script = registry.script.replace(
            "\n", "\nimport sys; del sys.argv[1:]\n", 1
        )  # ignores its arguments
        variables = {
            "PATH": write_stand_ins(tmp_path / "bin"),
            "NPM_CONFIG_REGISTRY": registry.url,
            "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
            "HOLDFAST_SERVERS_REACHABLE": "127.0.0.1",
            "HOLDFAST_SERVERS_REGISTRIES": registry.host,
        }
        approved = clone.run("servers", "approve", "--confined", **variables)
        seen = clone.run("call", "stranger.peek", '{"path": "/proc/self/environ"}', **variables).stdout

    assert ("HOLDFAST_" in seen, "PYTHONPYCACHEPREFIX=" in seen) == (True, names_file), approved.stdout


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.promise("RES-07", "BOX-01")
async def test_folders_that_an_editor_adds_are_not_part_of_the_approval(clone: Repository):
    added = clone.home.parent / "added"
    added.mkdir()
    (added / "notes.txt").write_text("canary")
    peek = f'/call stranger.peek {{"path": "{added}/notes.txt"}}'

    async def look() -> tuple[str, str]:
        async with editor(clone.home) as zed:
            session = await zed.new(clone.folder, additionalDirectories=[str(added)])
            await zed.prompt(session, "/servers", peek)
            ended = [
                step for step in zed.updates(session, "tool_call_update") if step["status"] == "completed"
            ]
            return zed.reply_text(session), ended[-1]["rawOutput"]["result"]

    clone.run("servers", "approve", "--confined")
    said, seen = await look()
    advice = f"holdfast servers approve stranger --confined --readable {added}"
    clone.run(*advice.split()[1:])

    assert seen == "FileNotFoundError"
    assert advice in said
    # The control: with the folder in the approval, the server reads it.
    assert (await look())[1] == "canary"


@pytest.mark.slow
@pytest.mark.promise("RES-07", "BOX-01")
def test_the_advice_for_a_read_only_folder_lets_a_confined_server_write_and_keeps_it_confined(
    clone: Repository,
):
    entry = {"command": sys.executable, "args": ["server.py"]}
    (clone.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"stranger": entry, "rights": entry}}))

    def rows(state: str) -> list[dict[str, Any]]:
        listed = map(json.loads, clone.run("servers", "list", "--json").stdout.splitlines())
        return [row for row in listed if row["state"] == state and row["server"] == "stranger"]

    clone.run("servers", "approve", "rights", "--direct")
    clone.run("servers", "approve", "stranger", "--confined")
    (warning,) = rows("warning")
    approved = clone.run(*shlex.split(warning["text"].partition("run: holdfast ")[2])).stdout
    (server,), warnings = rows("available"), rows("warning")
    (clone.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"stranger": entry}}))
    told, written = clone.perform(("told", {}), ("leave", {"text": "mine"}))

    assert 'can write: ".", the whole folder' in approved
    assert (server["confined"], server["writable"], warnings) == (True, ["."], [])
    assert (told["environment"], written["result"]) == ("sandboxed", "written")
