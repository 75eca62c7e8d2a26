"""The file tools in the folders of a session."""

import ctypes
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.builtin.files import disk
from holdfast.builtin.files.file_locks import FileLocks
from holdfast.builtin.files.glob import Glob
from holdfast.builtin.files.roots import Roots
from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from tests.builtin.support import Buffers, Files

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Notes\n\nTODO: write more\n")
    (folder / "src" / "main.py").write_text("def main():\n    pass  # TODO\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\0\0")
    return folder


async def test_file_is_read_by_a_relative_or_an_absolute_path(folder: Path):
    files = Files(folder)

    by_name = await files.call("read", path="README.md")
    by_path = await files.call("read", path=str(folder / "src" / ".." / "README.md"))

    assert by_name == {
        "path": "README.md",
        "text": "# Notes\n\nTODO: write more\n",
        "first_line": 1,
        "lines": 3,
    }
    assert by_path["text"] == by_name["text"]


async def test_names_that_are_not_utf_8_stop_no_tool(folder: Path):
    strange = folder / os.fsdecode(b"strange\xff")
    strange.mkdir()
    (strange / "notes.md").write_text("TODO: nothing\n")
    (folder / "link").symlink_to(strange.name)
    files = Files(folder)

    found = await files.call("find", text="TODO")
    listed = await files.call("list", path="link")
    searched = await files.call("find", path="link")

    assert [match["path"] for match in found["found"]] == ["README.md", "src/main.py"]
    assert (listed["folder"], searched["folder"]) == ("strange\ufffd", "strange\ufffd")
    assert [match["path"] for match in searched["found"]] == ["notes.md"]


async def test_long_file_is_read_in_parts(folder: Path):
    text = "".join(f"line {number}\n" for number in range(5000))
    (folder / "long.txt").write_text(text)
    files = Files(folder)

    read, line = "", 1
    while line:
        part = await files.call("read", path="long.txt", first_line=line, lines=1999)
        read, line = read + part["text"], part.get("next_line", 0)

    assert read == text


async def test_very_long_line_is_truncated_and_a_large_file_is_refused(folder: Path):
    (folder / "line").write_text(f"first\n{'x' * 1_000_000}\nlast\n")
    (folder / "large").write_bytes(b"x" * (4 * 1024 * 1024 + 1))

    before = await Files(folder).call("read", path="line")
    read = await Files(folder).call("read", path="line", first_line=2)

    assert before == {"path": "line", "text": "first\n", "first_line": 1, "lines": 3, "next_line": 2}
    assert read == {
        "path": "line",
        "text": "x" * 256 * 1024,
        "first_line": 2,
        "lines": 3,
        "truncated": "Line 2 has 1000000 characters; only the first 262144 are shown.",
        "next_line": 3,
    }
    assert await Files(folder).refused("read", path="large") == (
        "FILE_TOO_LARGE",
        "'large' has 4194305 bytes; the maximum is 4194304.",
    )


def test_file_that_becomes_too_large_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "log").write_text("")
    fstat = os.fstat

    def grow(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        if sys._getframe(1).f_code is disk.read_file.__code__:
            (folder / "log").write_text("x" * 20)
        return status

    monkeypatch.setattr(os, "fstat", grow)

    with pytest.raises(HoldfastError, match="'log' has 11 bytes; the maximum is 10"):
        disk.read_file(Roots((str(folder.resolve()),)), "log", max_bytes=10)


async def test_binary_file_is_refused_and_not_overwritten(folder: Path):
    files = Files(folder)
    (folder / "latin").write_bytes("Grüße".encode("latin-1"))

    assert await files.refused("read", path="picture.png") == (
        "NOT_TEXT",
        "'picture.png' is a binary file (8 bytes), not UTF-8 text.",
    )
    assert await files.code("read", path="latin") == "NOT_TEXT"
    assert await files.code("write", path="picture.png", text="") == "NOT_TEXT"
    assert (folder / "picture.png").read_bytes() == b"\x89PNG\r\n\0\0"


async def test_what_is_not_a_regular_file_is_refused_without_blocking(folder: Path):
    os.mkfifo(folder / "pipe")
    files = Files(folder)

    assert await files.refused("read", path="pipe") == ("NOT_A_FILE", "'pipe' is not a regular file.")
    assert await files.refused("read", path="src") == ("NOT_A_FILE", "'src' is a folder.")
    assert await files.refused("read", path="gone") == ("NO_FILE", "There is no file 'gone'.")
    assert await files.code("read", path="gone/too") == "NO_FILE"
    assert await files.code("read", path="README.md/x") == "NOT_A_FILE"
    assert await files.code("write", path="src", text="") == "NOT_A_FILE"
    assert await files.code("write", path="pipe", text="") == "NOT_A_FILE"
    assert await files.code("list", path="README.md") == "NOT_A_FILE"


async def test_write_creates_a_file_and_its_folders_and_returns_a_diff(folder: Path):
    answer = await Files(folder).call("write", path="docs/new/page.md", text="hello\n")

    assert (folder / "docs" / "new" / "page.md").read_text() == "hello\n"
    assert answer == {
        "path": "docs/new/page.md",
        "created": True,
        "diff": {"path": str(folder / "docs/new/page.md"), "old_text": None, "new_text": "hello\n"},
    }


async def test_write_replaces_a_file_atomically_and_keeps_its_mode(folder: Path):
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    before = script.stat().st_ino

    answer = await Files(folder).call("write", path="run.sh", text="#!/bin/sh\nexit 0\n")

    assert (script.read_text(), script.stat().st_mode & 0o7777) == ("#!/bin/sh\nexit 0\n", 0o755)
    assert script.stat().st_ino != before, "readers that have it open keep the old text"
    assert (answer["created"], answer["diff"]["old_text"]) == (False, "#!/bin/sh\n")
    assert sorted(os.listdir(folder)) == ["README.md", "picture.png", "run.sh", "src"]


async def test_failed_write_changes_nothing_and_leaves_no_temporary_file(folder: Path):
    files = Files(folder)

    assert await files.code("write", path="README.md", text="x" * (4 * 1024 * 1024 + 1)) == "FILE_TOO_LARGE"
    assert await files.code("write", path="README.md", text="half \ud800") == "BAD_ARGUMENT"
    assert (folder / "README.md").read_text().startswith("# Notes")
    assert sorted(os.listdir(folder)) == ["README.md", "picture.png", "src"]


async def test_editor_does_not_get_a_text_over_the_maximum_size(folder: Path):
    path = str(folder / "README.md")
    editor = Buffers({path: "TODO"})
    files = Files(folder, door=editor)
    long = "x" * (4 * 1024 * 1024 + 1)

    assert await files.code("write", path="README.md", text=long) == "FILE_TOO_LARGE"
    assert await files.code("edit", path="README.md", old="TODO", new=long) == "FILE_TOO_LARGE"
    assert editor.texts == {path: "TODO"}


def test_read_only_file_is_not_replaced():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o777)
        (folder / "kept.md").write_text("kept")
        (folder / "kept.md").chmod(0o444)
        (folder / "free.md").write_text("free")
        (folder / "free.md").chmod(0o666)
        with ThreadPoolExecutor(1) as unprivileged:
            codes = unprivileged.submit(_write_unprivileged, folder, "kept.md", "free.md").result()

        assert codes == ["FILE_ERROR", "OK"]
        assert [(folder / name).read_text() for name in ("kept.md", "free.md")] == ["kept", "new"]


def _write_unprivileged(folder: Path, *names: str) -> list[str]:
    """Write as another user, because root may write read-only files. The thread ends with its changed user id."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).setfsuid(65534)
    roots, locks = Roots((str(folder),)), FileLocks(folder / "locks")
    answers: list[str] = []
    for name in names:
        try:
            disk.write_file(roots, locks, name, "new", disk.read_file(roots, name))
            answers.append("OK")
        except HoldfastError as error:
            answers.append(error.code.name)
    return answers


async def test_edit_replaces_the_one_exact_match(folder: Path):
    answer = await Files(folder).call("edit", path="README.md", old="TODO: write more", new="Done.")

    assert (folder / "README.md").read_text() == "# Notes\n\nDone.\n"
    assert (answer["replaced"], answer["diff"]) == (
        1,
        {
            "path": str(folder / "README.md"),
            "old_text": "# Notes\n\nTODO: write more\n",
            "new_text": "# Notes\n\nDone.\n",
        },
    )


async def test_edit_with_several_matches_is_refused_unless_all_is_set(folder: Path):
    files = Files(folder)
    (folder / "twice").write_text("a = 1\nb = 2\na = 1\n")

    assert await files.refused("edit", path="twice", old="a = 1", new="a = 2") == (
        "SEVERAL_MATCHES",
        "'twice' contains this text 2 times, at lines 1, 3. Nothing was changed.",
    )
    assert (folder / "twice").read_text() == "a = 1\nb = 2\na = 1\n"
    assert (await files.call("edit", path="twice", old="a = 1", new="a = 2", all=True))["replaced"] == 2
    assert (folder / "twice").read_text() == "a = 2\nb = 2\na = 2\n"


async def test_edit_without_a_match_is_refused_with_the_likely_cause(folder: Path):
    files = Files(folder)
    (folder / "spaces").write_text("a = 1\nb = 2\n")
    (folder / "dos").write_bytes(b"one\r\ntwo\r\n")

    assert await files.refused("edit", path="spaces", old="c = 3", new="") == (
        "NO_MATCH",
        "'spaces' does not contain this text. Nothing was changed.",
    )
    _, spaces = await files.refused("edit", path="spaces", old="a  = 1\nb", new="")
    _, dos = await files.refused("edit", path="dos", old="one\ntwo", new="")
    assert "its whitespace differs" in spaces
    assert r"its lines end with \r\n" in dos


@pytest.mark.parametrize(
    ("path", "old", "new", "code"),
    [
        ("README.md", "", "x", "NO_MATCH"),
        ("README.md", "TODO", "TODO", "NO_MATCH"),
        ("gone", "a", "b", "NO_FILE"),
    ],
)
async def test_edit_without_effect_is_refused(folder: Path, path: str, old: str, new: str, code: str):
    assert await Files(folder).code("edit", path=path, old=old, new=new) == code


async def test_diff_of_a_long_file_has_only_the_changed_lines_and_a_few_around_them(folder: Path):
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))

    answer = await Files(folder).call("edit", path="long.txt", old="line 2500\n", new="another\n")

    around = ["line 2497\n", "line 2498\n", "line 2499\n"], ["line 2501\n", "line 2502\n", "line 2503\n"]
    assert answer["diff"]["old_text"] == "".join([*around[0], "line 2500\n", *around[1]])
    assert answer["diff"]["new_text"] == "".join([*around[0], "another\n", *around[1]])


async def test_list_returns_name_kind_and_size(folder: Path):
    (folder / "link").symlink_to("/etc")

    answer = await Files(folder).call("list")

    assert answer == {
        "folder": ".",
        "entries": [
            {"name": "README.md", "kind": "file", "size": 26},
            {"name": "link", "kind": "link"},
            {"name": "picture.png", "kind": "file", "size": 8},
            {"name": "src", "kind": "folder"},
        ],
    }


async def test_find_by_name_and_by_text(folder: Path):
    files = Files(folder)
    (folder / ".git").mkdir()
    (folder / ".git" / "TODO").write_text("TODO")

    by_name = await files.call("find", glob="*.py")
    by_text = await files.call("find", text="todo", ignore_case=True)
    nothing = await files.call("find", glob="src/*.md", text="x")

    assert by_name["found"] == [{"path": "src/main.py"}]
    assert by_text["found"] == [
        {"path": "README.md", "line": 3, "text": "TODO: write more"},
        {"path": "src/main.py", "line": 2, "text": "pass  # TODO"},
    ]
    assert (nothing["found"], ".git" in nothing["skipped"]) == ([], True)


async def test_find_stops_at_its_limit(folder: Path):
    for number in range(30):
        (folder / f"{number:02}.txt").write_text("x\n" * 10)

    answer = await Files(folder).call("find", glob="*.txt", text="x", limit=25)

    assert (len(answer["found"]), answer["truncated"]) == (
        25,
        "Only the first 25 matches are shown. Make the search narrower.",
    )


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c.py", "*.py", True),
        ("a/b/c.py", "**/*.py", True),
        ("c.py", "**/*.py", True),
        ("a/b/c.py", "a/*.py", False),
        ("a/b/c.py", "a/**/c.*", True),
        ("a/c.py", "a/**/c.py", True),
        ("a/b/c.py", "**", True),
        ("a/b/c.py", "b/**", False),
        ("a" * 200, "*a" * 100 + "b", False),
        ("/".join("a" * 60), "/".join(["**", "a"] * 30) + "/b", False),
    ],
)
def test_globs_match_as_usual_and_are_fast(path: str, pattern: str, expected: bool):
    assert Glob(pattern).matches(path.split("/")) is expected


@pytest.mark.promise("ACP-15")
async def test_unsaved_text_in_the_editor_is_read_and_edited(folder: Path):
    buffer = str(folder / "README.md")
    editor = Buffers({buffer: "unsaved\n"})
    files = Files(folder, door=editor)

    read = await files.call("read", path="src/../README.md")
    edited = await files.call("edit", path="README.md", old="unsaved", new="edited")

    assert read["text"] == "unsaved\n"
    assert edited["diff"] == {"path": buffer, "old_text": "unsaved\n", "new_text": "edited\n"}
    assert editor.texts == {buffer: "edited\n"}
    assert (folder / "README.md").read_text().startswith("# Notes"), "the editor decides when to save"


async def test_file_that_the_editor_does_not_have_is_read_from_disk_and_its_write_errors_are_returned(
    folder: Path,
):
    files = Files(folder, door=Buffers({}))

    assert (await files.call("read", path="README.md"))["text"].startswith("# Notes")
    assert await files.refused("write", path="README.md", text="x") == (
        "EDITOR_REFUSED",
        "The editor did not write 'README.md': Not in the project.",
    )
    assert (folder / "README.md").read_text().startswith("# Notes")


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("code", [codes.PEER_ERROR, codes.BAD_ANSWER, codes.TIMEOUT])
async def test_file_is_not_changed_if_the_editor_cannot_read_it(folder: Path, code: Code):
    files = Files(folder, door=Buffers({}, writes=False, fails=HoldfastError(code, "no idea")))

    refused = [
        await files.refused("write", path="README.md", text="x"),
        await files.refused("edit", path="README.md", old="TODO", new="DONE"),
    ]

    assert refused == [("EDITOR_REFUSED", "The editor did not read 'README.md': no idea.")] * 2
    assert "TODO" in (folder / "README.md").read_text()


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize(
    ("code", "read", "written"),
    [
        (codes.PEER_ERROR, "OK", "OK"),
        (codes.BAD_ANSWER, "EDITOR_REFUSED", "EDITOR_REFUSED"),
        (codes.TIMEOUT, "EDITOR_REFUSED", "EDITOR_REFUSED"),
    ],
)
async def test_plain_error_of_the_editor_can_mean_that_it_does_not_have_the_file(
    folder: Path, code: Code, read: str, written: str
):
    """Not every editor has an error code for a missing file. After such an error, a file is read from disk, and a new one written to disk."""
    files = Files(folder, door=Buffers({}, writes=False, fails=HoldfastError(code, "no idea")))

    assert await files.code("read", path="README.md") == read
    assert await files.code("write", path="new.md", text="x") == written
    assert (folder / "new.md").exists() is (written == "OK")


async def test_file_is_written_to_disk_if_the_editor_can_only_read(folder: Path):
    editor = Buffers({str(folder / "README.md"): "unsaved\n"}, writes=False)

    await Files(folder, door=editor).call("edit", path="README.md", old="unsaved", new="edited")

    assert (folder / "README.md").read_text() == "edited\n"


async def test_find_lists_the_folders_that_it_did_not_search(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    files = Files(folder, folder / "src", other)

    assert (await files.call("find", text="TODO"))["not_searched"] == [str(other)]
    assert "not_searched" not in await files.call("find", text="TODO", path=str(other))
    assert "not_searched" not in await Files(folder).call("find", text="TODO")


async def test_every_folder_of_the_session_can_be_used(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    files = Files(folder, other)

    await files.call("write", path=str(other / "x"), text="there")

    assert (other / "x").read_text() == "there"
    assert (await files.call("list", path=str(other)))["folder"] == str(other)
    assert await Files(folder).code("read", path=str(other / "x")) == "OUTSIDE_ROOTS"
