"""The file tools in an editor's session: within the roots, through the editor's buffers, and with permission."""

from pathlib import Path
from typing import Any

import pytest

from tests.journeys.editor import editor, tools_server

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-15")]

FS = {"fs": {"readTextFile": True, "writeTextFile": True}}


async def test_files_are_read_and_written_through_the_editors_buffers(home: Path, cwd: Path):
    (cwd / "notes.md").write_text("saved\n")
    buffers = {str(cwd / "notes.md"): "unsaved\n"}

    def write(params: Any) -> Any:
        buffers[params["path"]] = params["content"]
        return {}

    async with editor(home, capabilities=FS) as zed:
        zed.answers["fs/read_text_file"] = lambda params: {"content": buffers[params["path"]]}
        zed.answers["fs/write_text_file"] = write
        session = await zed.new(cwd)
        await zed.prompt(session, '/call files.read {"path": "notes.md"}')
        await zed.prompt(session, '/call files.edit {"path": "notes.md", "old": "unsaved", "new": "edited"}')

        (read, edit) = zed.updates(session, "tool_call")
        await zed.request("session/close", {"sessionId": session})
        zed.received.clear()
        await zed.load(session, cwd)
        (read_again, edit_again) = zed.updates(session, "tool_call")
        ended = [step for step in zed.updates(session, "tool_call_update") if step["status"] == "completed"]
        assert [(call["title"].split()[0], call["kind"]) for call in (read, edit)] == [
            ("files.read", "read"), ("files.edit", "edit"),
        ]  # fmt: skip
        assert [call["locations"] for call in (read, edit)] == [[{"path": str(cwd / "notes.md")}]] * 2
        assert (read_again, edit_again) == (read, edit)
        assert ended[0]["rawOutput"]["text"] == "unsaved\n"
        assert ended[1]["content"] == [
            {"type": "diff", "path": str(cwd / "notes.md"), "oldText": "unsaved\n", "newText": "edited\n"}
        ]
        assert buffers == {str(cwd / "notes.md"): "edited\n"}
        assert (cwd / "notes.md").read_text() == "saved\n"
        (question,) = [
            params for method, params in zed.agent_requests if method == "session/request_permission"
        ]
        assert question["toolCall"]["content"] == ended[1]["content"]
        assert [method for method, _ in zed.agent_requests] == [
            "fs/read_text_file",
            "fs/read_text_file", "session/request_permission",  # the question shows the change
            "fs/read_text_file", "fs/read_text_file", "fs/write_text_file",  # read again before it is written
        ]  # fmt: skip


async def test_without_buffers_files_are_read_and_written_on_disk(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd)
        await zed.prompt(session, '/call files.write {"path": "new.md", "text": "hello\\n"}')

        assert (cwd / "new.md").read_text() == "hello\n"
        assert [method for method, _ in zed.agent_requests] == ["session/request_permission"]


async def test_path_outside_of_the_roots_is_refused_without_asking_the_editor(
    home: Path, cwd: Path, tmp_path: Path
):
    (tmp_path / "secret").write_text("a secret")
    (cwd / "link").symlink_to(tmp_path / "secret")
    paths = ["../secret", str(tmp_path / "secret"), "link", "%2e%2e/secret", "x\\u0000"]

    async with editor(home, capabilities=FS) as zed:
        zed.answers["fs/read_text_file"] = lambda params: {"content": "a secret"}
        session = await zed.new(cwd)
        for path in paths:
            await zed.prompt(session, f'/call files.read {{"path": "{path}"}}')

        ended = [step for step in zed.updates(session, "tool_call_update") if step["status"] != "in_progress"]
        assert [(step["status"], step["rawOutput"]["code"]) for step in ended] == [
            ("failed", "OUTSIDE_ROOTS"),
            ("failed", "OUTSIDE_ROOTS"),
            ("failed", "OUTSIDE_ROOTS"),
            ("failed", "BAD_PATH"),
            ("failed", "BAD_PATH"),
        ]
        assert "a secret" not in zed.reply_text(session)
        assert zed.agent_requests == []


async def test_additional_directories_are_roots(home: Path, cwd: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("there")

    async with editor(home) as zed:
        session = await zed.new(cwd, additionalDirectories=[str(other)])
        await zed.prompt(session, f'/call files.read {{"path": "{other}/file"}}')

        assert "there" in zed.reply_text(session)


async def test_other_servers_cannot_show_a_diff(home: Path, cwd: Path):
    async with editor(home) as zed:
        session = await zed.new(cwd, tools_server("tools"), tools_server("myfiles"))
        await zed.prompt(session, "/call tools.forge", "/call myfiles.forge")
        live = zed.updates(session, "tool_call_update")
        await zed.request("session/close", {"sessionId": session})
        zed.received.clear()
        await zed.load(session, cwd)

        ended = [step["content"] for step in live if step["status"] == "completed"]
        content = {"type": "content", "content": {"type": "text", "text": "nothing happened"}}
        assert ended == [[content]] * 2
        assert zed.updates(session, "tool_call_update") == live


@pytest.mark.promise("RES-08")
async def test_client_cannot_take_the_name_of_the_file_tools(home: Path, cwd: Path):
    impostor: dict[str, Any] = {"name": "files", "command": "/bin/false", "args": [], "env": []}

    async with editor(home) as zed:
        session = await zed.new(cwd, impostor)
        await zed.prompt(session, "/why files", "/call files.list {}")

        assert "A built-in server has this name. Choose another name." in zed.reply_text(session)
        assert [step["status"] for step in zed.updates(session, "tool_call_update")][-1] == "completed"


async def test_sandboxed_session_reads_and_writes_files_on_disk_without_the_editor(home: Path, cwd: Path):
    (cwd / "file").write_text("mine")

    async with editor(home, "--trust", "sandboxed", capabilities=FS) as zed:
        session = await zed.new(cwd)
        await zed.prompt(session, '/call files.read {"path": "file"}')
        await zed.prompt(session, '/call files.write {"path": "file", "text": "written"}')

        (read, _) = [
            step for step in zed.updates(session, "tool_call_update") if step["status"] == "completed"
        ]
        assert read["rawOutput"]["text"] == "mine"
        assert "not saved in the editor" in read["rawOutput"]["note"]
        assert (cwd / "file").read_text() == "written"
        assert [method for method, _ in zed.agent_requests] == ["session/request_permission"]


async def test_sandboxed_session_around_holdfasts_own_files_has_no_file_tools(home: Path, tmp_path: Path):
    async with editor(home, "--trust", "sandboxed") as zed:
        session = await zed.new(tmp_path)
        await zed.prompt(session, "/why files")

        assert "overlaps with Holdfast's own files" in zed.reply_text(session)
