"""The shell and plan tools of a session."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import settings
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.door import CommandResult, DoorCapabilities, PermissionQuestion, ShellCommand
from holdfast.model.event import Decision, Planned
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.session.session import Session
from holdfast.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

AGENT_SERVERS = frozenset({"shell", "plan"})


class Person:
    """A door that gives the same answer to every question, and remembers the questions."""

    capabilities = DoorCapabilities(permission=True)

    def __init__(self, answer: Decision) -> None:
        self.answer = answer
        self.questions: list[PermissionQuestion] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.questions.append(question)
        return self.answer

    async def elicit(self, params: JsonObject) -> JsonObject:
        return {}

    async def sample(self, params: JsonObject) -> JsonObject:
        return {}

    async def read_text(self, path: str) -> str:
        raise AssertionError

    async def write_text(self, path: str, text: str) -> None:
        raise AssertionError


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-the-model")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").touch()
    (tmp_path / "project" / "src").mkdir(parents=True)
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "home" / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "home" / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
        "HOLDFAST_SERVERS_PASS_ON": "ANTHROPIC_API_KEY",
    }
    loaded = settings.load(tmp_path / "home" / "config.toml", environ)
    return Host(settings=loaded, store=MemoryStore())


async def open_session(host: Host, folder: Path, door: Any = None, **options: Any) -> Session:
    opening = OpenOptions(cwd=folder, extra_builtins=AGENT_SERVERS, mode=Mode.ASK, door=door, **options)
    session = await host.open(opening)
    await session.wait_ready()
    return session


async def test_applications_get_the_shell_only_if_they_name_it(host: Host, tmp_path: Path):
    async with host:
        async with host.session(cwd=tmp_path / "project") as session:
            without = session.available
        async with host.session(cwd=tmp_path / "project", tools=["shell.run", "files.*"]) as session:
            named = session.available

    assert (without, named) == (("files",), ("files", "shell"))


async def test_a_command_runs_in_the_session_s_folder_without_the_model_s_keys(host: Host, tmp_path: Path):
    async with host:
        session = await open_session(host, tmp_path / "project", Person(Decision.ALLOW_ONCE))
        ran = await session.call(
            "shell.run", {"command": "pwd; echo to stderr >&2; env; exit 3", "cwd": "src"}
        )
        await session.close()

    assert ran.data["exit_code"] == 3
    assert ran.data["output"].startswith(f"{tmp_path / 'project' / 'src'}\nto stderr\n")
    assert "PATH=" in ran.data["output"]
    assert "a-key-of-the-model" not in ran.text


async def test_a_command_ends_at_its_deadline_with_all_that_it_started(host: Host, tmp_path: Path):
    command = "echo begun; sleep 3600 & echo $! > pid; wait"
    async with host:
        session = await open_session(host, tmp_path / "project", Person(Decision.ALLOW_ONCE))
        ran = await session.call("shell.run", {"command": command, "timeout": 1})
        pid = int((tmp_path / "project" / "pid").read_text())
        await session.close()

    assert ran.data["timed_out"]
    assert ran.data["output"] == "begun\n"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_only_the_beginning_and_the_end_of_a_long_output_are_kept(host: Host, tmp_path: Path):
    async with host:
        session = await open_session(host, tmp_path / "project", Person(Decision.ALLOW_ONCE))
        ran = await session.call("shell.run", {"command": "seq 1 200000"})
        await session.close()

    output = ran.data["output"]
    assert ran.data["truncated"]
    assert len(output) < 31_000
    assert output.startswith("1\n2\n")
    assert output.endswith("199999\n200000\n")


async def test_always_is_remembered_for_the_exact_command_only(host: Host, tmp_path: Path):
    person = Person(Decision.ALLOW_ALWAYS)
    async with host:
        session = await open_session(host, tmp_path / "project", person)
        for arguments in (
            {"command": "true"},
            {"command": "true", "timeout": 5},
            {"command": "true "},
            {"command": "true", "cwd": "src"},
        ):
            assert (await session.call("shell.run", arguments)).ok
        await session.close()

    asked = [msgspec.json.decode(question.call.arguments) for question in person.questions]
    assert asked == [{"command": "true"}, {"command": "true "}, {"command": "true", "cwd": "src"}]
    assert {question.remembers_arguments for question in person.questions} == {True}
    assert person.questions[0].title == "shell.run (with your rights, not confined) “Run a command”"


async def test_a_question_in_the_mode_auto_says_that_the_command_is_confined(host: Host, tmp_path: Path):
    person = Person(Decision.REJECT)
    asking = replace(host.settings.permission, ask=(parse_tool_pattern("shell.run"),))
    async with Host(settings=replace(host.settings, permission=asking), store=MemoryStore()) as asking_host:
        session = await open_session(asking_host, tmp_path / "project", person)
        for mode in (Mode.ASK, Mode.AUTO):
            await session.permission.change_mode(mode)
            await session.call("shell.run", {"command": "true"})
        await session.close()

    assert [question.title for question in person.questions] == [
        "shell.run (with your rights, not confined) “Run a command”",
        "shell.run (confined) “Run a command”",
    ]


async def test_in_the_mode_auto_a_command_is_confined_and_has_no_network(host: Host, tmp_path: Path):
    (tmp_path / "secret").write_text("out of reach")
    command = f"cat {tmp_path}/secret; echo new > file; cat /proc/net/dev | wc -l; id -u"
    async with host:
        session = await open_session(host, tmp_path / "project")
        await session.permission.change_mode(Mode.AUTO)
        ran = await session.call("shell.run", {"command": command})
        await session.close()

    assert ran.data["confined"], ran.text
    assert "out of reach" not in ran.text
    assert "No such file" in ran.data["output"]
    assert (tmp_path / "project" / "file").read_text() == "new\n"


async def test_a_command_runs_in_a_terminal_of_the_editor_if_there_is_one(host: Host, tmp_path: Path):
    class Editor(Person):
        capabilities = DoorCapabilities(permission=True, terminal=True)

        def __init__(self, answer: Decision) -> None:
            super().__init__(answer)
            self.ran: list[ShellCommand] = []

        async def run_command(self, command: ShellCommand) -> CommandResult:
            self.ran.append(command)
            return CommandResult(output="from the editor", exit_code=0)

    editor = Editor(Decision.ALLOW_ONCE)
    async with host:
        session = await open_session(host, tmp_path / "project", editor)
        ran = await session.call("shell.run", {"command": "make", "timeout": 9})
        await session.permission.change_mode(Mode.AUTO)
        confined = await session.call("shell.run", {"command": "echo confined"})
        await session.close()

    assert (ran.data["exit_code"], ran.data["output"]) == (0, "from the editor")
    assert [(command.text, command.seconds) for command in editor.ran] == [("make", 9)]
    assert confined.data["output"] == "confined\n", "what no person allowed does not run in the editor"


async def test_cancelling_a_call_ends_its_command(host: Host, tmp_path: Path):
    async with host:
        session = await open_session(host, tmp_path / "project", Person(Decision.ALLOW_ONCE))
        fifo = tmp_path / "project" / "fifo"
        os.mkfifo(fifo)
        call = asyncio.create_task(session.call("shell.run", {"command": "echo $$ > fifo; exec sleep 3600"}))
        pid = int(await asyncio.to_thread(fifo.read_text))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await session.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_plan_is_stored_and_shown(host: Host, tmp_path: Path):
    async with host:
        session = await open_session(host, tmp_path / "project")
        steps = [{"content": "Read", "status": "completed"}, {"content": "Write"}]
        assert (await session.call("plan.update", {"steps": steps})).ok, "it needs no permission"
        events = [stored.event async for stored in host.store.events(session.context.session_id)]
        await session.close()

    plans = [event for event in events if isinstance(event, Planned)]
    assert [[entry["content"] for entry in plan.entries] for plan in plans] == [["Read", "Write"]]


async def test_the_manifests_are_small(host: Host, tmp_path: Path):
    async with host:
        session = await open_session(host, tmp_path / "project")
        sizes: dict[str, int] = {}
        for tool in session.available_tools:
            schema = len(msgspec.json.encode(tool.definition.input_schema))
            sizes[tool.server.name] = (
                sizes.get(tool.server.name, 0) + schema + len(tool.definition.description or "")
            )
        await session.close()

    assert max(sizes["shell"], sizes["plan"]) < 800, "about 200 tokens each"
