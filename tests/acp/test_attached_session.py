"""An editor loads a session that another host has open: it is attached through that host's socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.acp import reopen_session
from holdfast.acp.messages import ClientCapabilities, FileSystemCapabilities
from holdfast.host.host import Host
from holdfast.host.remote import client
from holdfast.host.remote.sockets import SOCKETS_FOLDER
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.permission import DoorKind, Mode
from holdfast.session.session import Session
from holdfast.wire.messages import PeerError
from tests.acp.zed import Zed, connected
from tests.connect.conftest import HostFactory, make_host
from tests.journeys.editor import tools_server

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-01")]

WRITE = '/call files.write {"path": "note", "text": "hi"}'
OPENS_FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True))
SHOWS_NOTICES = ClientCapabilities(session={"notices": {}})


@asynccontextmanager
async def other_editor(
    make_host: HostFactory,
    folder: Path,
    capabilities: ClientCapabilities | None = None,
    max_mode: str = "auto",
) -> AsyncIterator[tuple[Host, str, Zed, Zed]]:
    """A session that one editor has opened, and an editor with a host of its own. The host is that of the first."""
    limit = {"HOLDFAST_PERMISSION_MAX_MODE_ACP": max_mode}
    async with (
        make_host({}, durable=True, **limit) as first,
        make_host({}, durable=True, **limit) as second,
        connected(first) as one,
        connected(second, capabilities) as two,
    ):
        session = (await one.request("session/new", cwd=str(folder), mcpServers=[]))["sessionId"]
        yield first, session, one, two


async def load(zed: Zed, session: str, folder: Path, method: str = "session/load", **more: Any) -> Any:
    return await zed.request(method, **{"sessionId": session, "cwd": str(folder), "mcpServers": [], **more})


def shown(zed: Zed) -> list[Any]:
    """The conversation that the editor shows."""
    kinds = ("user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update")
    return zed.updates(*kinds)


@pytest.mark.promise("ACP-04")
async def test_load_sends_the_whole_conversation_and_then_what_happens_next(
    make_host: HostFactory, tmp_path: Path
):
    async with other_editor(make_host, tmp_path) as (_, session, one, two):
        one.answer.set_result(Decision.ALLOW_ALWAYS)
        await one.prompt(session, WRITE)
        state = await load(two, session, tmp_path)
        replayed = shown(two)
        await one.prompt(session, WRITE)
        await two.wait_until(lambda zed: len(shown(zed)) >= len(shown(one)) + 2)

        assert state["modes"]["currentModeId"] == "ask"
        assert [update["sessionUpdate"] for update in replayed[:2]] == ["user_message_chunk", "tool_call"]
        assert len(two.shown("agent_message_chunk")) == 2
        assert [update for update in shown(two) if "user" not in update["sessionUpdate"]] == shown(one)
        assert two.updates("available_commands_update") == one.updates("available_commands_update")


@pytest.mark.promise("ACP-05")
async def test_resume_sends_only_what_happens_next(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (_, session, one, two):
        await one.prompt(session, "/help")
        await load(two, session, tmp_path, "session/resume")
        before = shown(two)
        reason = await two.prompt(session, "/servers")

        assert (before, reason) == ([], "end_turn")
        assert two.shown("agent_message_chunk") == [
            "".join(f"- {name}: available\n" for name in ("files", "shell", "plan", "agents"))
        ]


@pytest.mark.promise("ACP-08")
async def test_either_editor_cancels_the_running_turn(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (_, session, one, two):
        await load(two, session, tmp_path)
        turn = asyncio.create_task(two.prompt(session, WRITE))
        await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        await one.peer.notify("session/cancel", {"sessionId": session})
        first = await turn
        again = asyncio.create_task(one.prompt(session, WRITE))
        await one.wait_until(lambda zed: len(zed.updates("tool_call")) == 2)
        await two.peer.notify("session/cancel", {"sessionId": session})

        assert (first, await again) == ("cancelled", "cancelled")


@pytest.mark.promise("ACP-08")
async def test_cancel_right_after_a_prompt_cancels_it(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (_, session, _one, two):
        await load(two, session, tmp_path)
        turns = [asyncio.create_task(two.prompt(session, WRITE)) for _ in range(3)]
        await asyncio.sleep(0)  # the prompts are sent, and not answered
        await two.peer.notify("session/cancel", {"sessionId": session})

        assert await asyncio.gather(*turns) == ["cancelled"] * 3


async def test_editor_that_disconnects_does_not_end_the_turn_that_it_started(
    make_host: HostFactory, tmp_path: Path
):
    async with (
        make_host({}, durable=True) as first,
        make_host({}, durable=True) as second,
        connected(first) as one,
    ):
        session = (await one.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        async with connected(second) as two:
            await load(two, session, tmp_path)
            turn = asyncio.create_task(two.prompt(session, WRITE))
            await asyncio.gather(one.is_asked.wait(), two.is_asked.wait())
        with pytest.raises(PeerError):
            await turn
        one.answer.set_result(Decision.ALLOW_ONCE)
        await one.wait_until(lambda zed: zed.statuses()[-1] == "completed")

        assert await one.prompt(session, "/help") == "end_turn"


@pytest.mark.parametrize(
    ("capabilities", "servers", "notice"),
    [
        (None, [], []),
        (None, ["files"], []),  # the session has it
        (None, ["files", "mine"], ["It does not start the servers that this editor sent (mine)."]),
        (OPENS_FILES, [], ["It does not see text that is not saved in this editor."]),
    ],
    ids=["nothing", "known server", "unknown server", "files"],
)
async def test_editor_is_told_what_the_session_does_not_use(
    make_host: HostFactory,
    tmp_path: Path,
    capabilities: ClientCapabilities | None,
    servers: list[str],
    notice: list[str],
):
    async with other_editor(make_host, tmp_path, capabilities) as (_, session, _one, two):
        entries = [tools_server(name) for name in servers]
        await load(two, session, tmp_path, mcpServers=entries)
        await two.prompt(session, "/servers")
        first = two.shown("agent_message_chunk")
        await two.prompt(session, "/servers")

        told = [line.partition(". ")[2] for line in first[0].splitlines() if "is open in process" in line]
        assert told == notice
        assert len(two.shown("agent_message_chunk")) == len(first) + 1  # the editor is told once


async def test_files_of_a_session_are_not_opened_by_an_attached_editor(
    make_host: HostFactory, tmp_path: Path
):
    (tmp_path / "note").write_text("on disk")
    async with other_editor(make_host, tmp_path, OPENS_FILES) as (_, session, _one, two):
        await load(two, session, tmp_path)
        await two.prompt(session, '/call files.read {"path": "note"}')

        assert (two.asked, "on disk" in "".join(two.shown("agent_message_chunk"))) == ([], True)


async def test_mode_and_trust_are_changed_through_the_owner(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (host, session, one, two):
        await load(two, session, tmp_path)
        await two.request("session/set_mode", sessionId=session, modeId="read-only")
        told = [update["currentModeId"] for update in two.updates("current_mode_update")]
        options = await two.request(
            "session/set_config_option", sessionId=session, configId="trust", value="sandboxed"
        )
        live = host.find_live(session)
        assert live is not None
        await one.wait_until(lambda zed: len(zed.updates("config_option_update")) == 2)

        assert (told, live.permission.mode, live.context.trust_level) == (
            ["read-only"],
            "read-only",
            "sandboxed",
        )
        assert [option["currentValue"] for option in options["configOptions"]] == ["read-only", "sandboxed"]
        assert one.updates("config_option_update")[-1]["configOptions"] == options["configOptions"]


@pytest.mark.promise("SES-04")
async def test_mode_is_lowered_and_offered_only_up_to_the_limit_for_editors(
    make_host: HostFactory, tmp_path: Path
):
    async with other_editor(make_host, tmp_path, max_mode="ask") as (host, session, _one, two):
        live = host.find_live(session)
        assert live is not None
        await live.permission.change_mode(Mode.AUTO)
        state = await load(two, session, tmp_path)
        with pytest.raises(PeerError) as refused:
            await two.request("session/set_mode", sessionId=session, modeId="auto")

        offered = [mode["id"] for mode in state["modes"]["availableModes"]]
        assert (live.permission.mode, state["modes"]["currentModeId"], offered) == (
            "ask",
            "ask",
            ["ask", "read-only"],
        )
        assert "permission.max_mode.acp of the settings allows at most ask" in str(refused.value)


@pytest.mark.promise("SES-04")
async def test_chat_cannot_raise_the_mode_above_the_limit_of_an_attached_editor(
    make_host: HostFactory, tmp_path: Path
):
    async with other_editor(make_host, tmp_path, max_mode="ask") as (host, session, _one, _two):
        live = host.find_live(session)
        assert live is not None
        await live.permission.change_mode(Mode.READ_ONLY, DoorKind.CHAT)
        await live.permission.change_mode(Mode.ASK, DoorKind.CHAT)
        with pytest.raises(HoldfastError) as refused:
            await live.permission.change_mode(Mode.AUTO, DoorKind.CHAT)
        limited = live.permission.mode
        (editor,) = live.doors._attached  # pyright: ignore[reportPrivateUsage]
        live.doors.detach(editor)
        await live.permission.change_mode(Mode.AUTO, DoorKind.CHAT)

        assert (limited, live.permission.mode) == (Mode.ASK, Mode.AUTO)
        assert refused.value.message == (
            "The mode auto is not allowed while an editor has the session open: permission.max_mode.acp of the settings"
            " allows at most ask."
        )


@pytest.mark.parametrize(
    ("change", "rpc_code", "message"),
    [
        ({"cwd": "other"}, -32602, "The session was opened in "),
        ({"additionalDirectories": ["other"]}, -32003, "The session is open without the folder "),
    ],
    ids=["folder", "additional folder"],
)
async def test_session_that_is_not_as_requested_is_refused(
    make_host: HostFactory, tmp_path: Path, change: dict[str, Any], rpc_code: int, message: str
):
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    async with other_editor(make_host, project) as (host, session, _one, two):
        asked: dict[str, Any] = {
            key: [str(other)] if isinstance(value, list) else str(other) for key, value in change.items()
        }
        with pytest.raises(PeerError) as refused:
            await load(two, session, project, **asked)
        live = host.find_live(session)
        assert live is not None

        assert (refused.value.rpc_code, str(refused.value).startswith(message)) == (rpc_code, True)
        assert live.doors.answering_count == 1
        assert await load(two, session, project)


@pytest.mark.promise("ACP-06")
async def test_owner_without_a_socket_holds_the_session(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (host, session, _one, two):
        (host.settings.data_dir / SOCKETS_FOLDER / host.store.holder_id).unlink()
        with pytest.raises(PeerError) as refused:
            await load(two, session, tmp_path)

        assert refused.value.rpc_code == codes.SESSION_HELD.rpc_code


@pytest.mark.promise("ACP-06")
async def test_owner_that_does_not_answer_holds_the_session(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.2)
    async with other_editor(make_host, tmp_path) as (host, session, _one, two):
        path = host.settings.data_dir / SOCKETS_FOLDER / host.store.holder_id
        path.unlink()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))
            silent.listen()
            with pytest.raises(PeerError) as refused:
                await load(two, session, tmp_path)

        assert refused.value.rpc_code == codes.SESSION_HELD.rpc_code


async def test_load_waits_for_an_owner_that_is_closing_the_session(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (_, session, one, two):
        one.answer.set_result(Decision.ALLOW_ONCE)
        await one.prompt(session, WRITE)
        closing = asyncio.create_task(one.request("session/close", sessionId=session))
        await asyncio.sleep(0)
        loaded = await load(two, session, tmp_path)
        await closing

        assert loaded["modes"]["currentModeId"] == "ask"
        assert await two.prompt(session, "/help") == "end_turn"


async def test_owner_that_never_finishes_closing_holds_the_session(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reopen_session, "_CLOSING_SECONDS", 0.2)
    async with other_editor(make_host, tmp_path) as (_, session, _one, two):
        with monkeypatch.context() as patch:
            patch.setattr(Session, "is_closing", property(lambda self: True))
            with pytest.raises(PeerError) as refused:
                await load(two, session, tmp_path)

        assert refused.value.rpc_code == codes.SESSION_HELD.rpc_code


@pytest.mark.parametrize("notices", [True, False])
async def test_session_that_its_owner_closes_is_loaded_again_here(
    make_host: HostFactory, tmp_path: Path, *, notices: bool
):
    async with other_editor(make_host, tmp_path, SHOWS_NOTICES if notices else None) as (
        host,
        session,
        _one,
        two,
    ):
        await load(two, session, tmp_path)
        live = host.find_live(session)
        assert live is not None
        await live.close()
        if notices:
            notice = await two.wait_until(lambda zed: zed.updates("notice"))
            assert notice[0]["title"] == "The session was closed. To continue, load the session again."
        async with asyncio.timeout(10):
            while True:  # until the second host has noticed it
                try:
                    await two.prompt(session, "/help")
                except PeerError as refused:
                    error = refused
                    break
        await load(two, session, tmp_path)

        assert error.rpc_code in (codes.BAD_ARGUMENT.rpc_code, codes.CONNECTION_CLOSED.rpc_code)
        assert "The session was closed." in error.message
        assert await two.prompt(session, "/help") == "end_turn"


async def test_session_of_another_process_is_not_deleted(make_host: HostFactory, tmp_path: Path):
    async with other_editor(make_host, tmp_path) as (_, session, one, two):
        await load(two, session, tmp_path)
        with pytest.raises(PeerError) as refused:
            await two.request("session/delete", sessionId=session)

        assert refused.value.rpc_code == codes.SESSION_HELD.rpc_code
        assert [await zed.prompt(session, "/help") for zed in (one, two)] == ["end_turn"] * 2
