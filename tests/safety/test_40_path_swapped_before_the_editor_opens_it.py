"""Attack 40: a confined server swaps a folder for a link after its path was checked, and before the editor opens it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from holdfast.builtin.files import editor_files
from holdfast.builtin.files.disk import FileSnapshot
from holdfast.builtin.files.editor_files import DISK_NOTE, EditorFiles
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.door import DoorCapabilities
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement
from holdfast.model.trust import Trust
from holdfast.toolkit.outcome import Ok
from tests.builtin.support import Buffers, Files
from tests.connect.conftest import HostFactory, counter_entry, for_sandboxed, make_host
from tests.safety.swapping import swapping

__all__ = ["make_host"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-15")]

SECRET = "a secret"
ROUNDS = 100


class EditorByName(Buffers):
    """An editor that has no buffers: it opens every file by its name, a moment after it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[str] = []
        self.capabilities = DoorCapabilities(read_files=True, write_files=True)

    async def read_text(self, path: str) -> str:
        self.asked.append(path)
        await asyncio.sleep(0.0002)
        try:
            return Path(path).read_text()
        except OSError:
            return "nothing"

    async def write_text(self, path: str, text: str) -> None:
        self.asked.append(path)
        await asyncio.sleep(0.0002)
        if Path(path).exists():
            Path(path).write_text(text)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    return outside


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    cwd = tmp_path.resolve() / "cwd"
    (cwd / "folder").mkdir(parents=True)
    (cwd / "folder" / "file").write_text("mine")
    return cwd


async def attack(files: Files, cwd: Path, outside: Path, rounds: int = ROUNDS) -> bool:
    """Whether a file outside of the session's folder was read or written while the folder was swapped."""
    with swapping(cwd / "folder", outside):
        for _ in range(rounds):
            envelope = await files._envelope("read", {"path": "folder/file"})
            await files.code("write", path="folder/file", text="mine")
            read = json.loads(envelope.data)["text"] if isinstance(envelope, Ok) else None
            if read == SECRET or (outside / "file").read_text() != SECRET:
                return True
    return False


@pytest.mark.parametrize(
    ("trust", "confined"),
    [(Trust.SANDBOXED, None), (Trust.DIRECT, "."), (Trust.DIRECT, "folder/..")],
    ids=["a sandboxed session", "beside a confined server", "beside a confined server of a folder above"],
)
async def test_swapped_folder_is_not_opened_by_the_editor(
    cwd: Path, outside: Path, trust: Trust, confined: str | None
):
    editor, running = EditorByName(), ConfinedFolders()
    root = cwd.parent if confined == "folder/.." else cwd
    files = Files(cwd, door=editor, trust=trust, confined_folders=running)

    with running.add_while_running(Confinement(roots=(str(root),))) if confined else nullcontext():
        escaped = await attack(files, cwd, outside)

    assert (escaped, editor.asked) == (False, [])


async def test_editor_that_opens_the_checked_path_by_name_leaves_the_folder(cwd: Path, outside: Path):
    """Control: a direct session without confined servers, as every session was."""
    assert await attack(Files(cwd, door=EditorByName()), cwd, outside, rounds=20_000)


async def test_confined_server_started_during_a_call_stops_the_editors_part(cwd: Path):
    """Unsaved text that was read before is not written to disk: that would save it behind the user's back."""
    running, path = ConfinedFolders(), str(cwd / "folder" / "file")
    editor = EditorFiles(Buffers({path: "unsaved"}), Trust.DIRECT, running)
    on_disk = FileSnapshot(real_path=path, text="mine")
    unsaved = await editor.read("folder/file", on_disk, for_writing=True)

    with running.add_while_running(Confinement(roots=(str(cwd),))):
        read_again = await editor.read("folder/file", on_disk, for_writing=True)
        with pytest.raises(HoldfastError) as error:
            await editor.write("folder/file", "edited", unsaved)

    assert (unsaved.text, read_again.text) == ("unsaved", "mine")
    assert error.value.code is codes.FILE_CHANGED


async def test_answer_says_that_unsaved_text_is_not_included(cwd: Path):
    path = str(cwd / "folder" / "file")
    editor = Buffers({path: "unsaved"})
    sandboxed = Files(cwd, door=editor, trust=Trust.SANDBOXED)

    read = await sandboxed.call("read", path="folder/file")
    await sandboxed.call("write", path="folder/file", text="written")

    assert (read["text"], read["note"]) == ("mine", DISK_NOTE)
    assert (editor.texts, Path(path).read_text()) == ({path: "unsaved"}, "written")
    assert "note" not in await Files(cwd, door=editor).call("read", path="folder/file")
    assert "note" not in await Files(cwd, trust=Trust.SANDBOXED).call("read", path="folder/file")


async def test_editor_is_still_asked_where_no_confined_server_can_write(cwd: Path):
    running = ConfinedFolders()
    (cwd / "other").write_text("saved")
    editor = Buffers({str(cwd / "other"): "unsaved", str(cwd / "folder" / "file"): "unsaved"})
    files = Files(cwd, door=editor, confined_folders=running)

    with running.add_while_running(Confinement(roots=(str(cwd / "folder"),))):
        during = [(await files.call("read", path=path))["text"] for path in ("other", "folder/file")]
    after = (await files.call("read", path="folder/file"))["text"]

    assert (during, after) == (["unsaved", "mine"], "unsaved")


async def test_running_confined_server_of_another_session_turns_the_editor_off(
    make_host: HostFactory, cwd: Path, bwrap: object
):
    """With a real confined server, in the same folder and in the same host."""
    path = str(cwd / "folder" / "file")
    editor = Buffers({path: "unsaved"})
    texts: list[str] = []

    async with make_host({"counter": for_sandboxed(counter_entry())}) as host:
        direct = await host.open(OpenOptions(cwd=cwd, door=editor))
        await direct.wait_ready_and_store()

        async def read() -> None:
            result = await direct.call("files.read", {"path": "folder/file"})
            texts.append(result.data["text"])

        await read()
        async with host.session(cwd=cwd, trust=Trust.SANDBOXED) as sandboxed:
            assert "counter" in sandboxed.available
            await read()
        async with asyncio.timeout(20):
            while texts[-1] == "mine":  # until the sandbox has been cleaned up
                await read()
        await direct.close()

    assert (texts[:2], texts[-1]) == (["unsaved", "mine"], "unsaved")


async def test_lowering_the_trust_of_a_session_turns_the_editor_off(make_host: HostFactory, cwd: Path):
    editor = Buffers({str(cwd / "folder" / "file"): "unsaved"})

    async with make_host({}) as host:
        session = await host.open(OpenOptions(cwd=cwd, door=editor))
        await session.wait_ready_and_store()
        before = await session.call("files.read", {"path": "folder/file"})
        await session.lower_trust()
        after = await session.call("files.read", {"path": "folder/file"})
        await session.close()

    assert (before.data["text"], after.data["text"]) == ("unsaved", "mine")


# Confined servers of another process

OTHER_PROCESS = """
import os, sys
from pathlib import Path
from holdfast.model.confined_folders import lock_root
root = Path(sys.argv[1])
locks = lock_root(str(root), [step.stat() for step in (root, *root.parents)])
print("running", flush=True)
sys.stdin.read()
locks.setup_locks.close()
locks.running_lock.close()
"""


@contextmanager
def server_of_another_process(root: Path) -> Iterator[None]:
    """Another process notes that a confined server runs in this folder, as the sandbox does before it starts one."""
    command = (sys.executable, "-c", OTHER_PROCESS, str(root))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        yield
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.parametrize("where", [".", ".."], ids=["the folder", "a folder above"])
async def test_confined_server_of_another_process_turns_the_editor_off(cwd: Path, outside: Path, where: str):
    editor = EditorByName()

    with server_of_another_process((cwd / where).resolve()):
        escaped = await attack(Files(cwd, door=editor), cwd, outside, rounds=20)

    assert (escaped, editor.asked) == (False, [])


async def test_confined_server_elsewhere_leaves_the_editor_on(cwd: Path, outside: Path):
    path = str(cwd / "folder" / "file")

    with server_of_another_process(outside):
        read = await Files(cwd, door=Buffers({path: "unsaved"})).call("read", path="folder/file")

    assert read["text"] == "unsaved"


async def test_server_of_another_process_that_starts_while_the_editor_is_asked_is_noticed(cwd: Path):
    running = ExitStack()

    class Slow(Buffers):
        """An editor; while it is asked, another process starts a confined server."""

        async def read_text(self, path: str) -> str:
            text = await super().read_text(path)
            if not self.capabilities.write_files:
                running.enter_context(server_of_another_process(cwd))
            return text

        async def write_text(self, path: str, text: str) -> None:
            await super().write_text(path, text)
            running.enter_context(server_of_another_process(cwd))

    path = str(cwd / "folder" / "file")
    with running:
        read = await Files(cwd, door=Slow({path: "unsaved"}, writes=False)).call("read", path="folder/file")
    with running:
        written = await Files(cwd, door=Slow({path: "unsaved"})).refused(
            "write", path="folder/file", text="x"
        )

    assert (read["text"], read["note"]) == ("mine", DISK_NOTE)
    assert written[0] == "FILE_CHANGED"
    assert "while the editor wrote the file" in written[1]


async def test_editor_is_asked_if_other_processes_are_not_looked_at(
    cwd: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
):
    """Control."""
    monkeypatch.setattr(editor_files, "can_confined_server_change", lambda path: False)  # pyright: ignore
    editor = EditorByName()

    with server_of_another_process(cwd):
        await attack(Files(cwd, door=editor), cwd, outside, rounds=20)

    assert editor.asked != []
