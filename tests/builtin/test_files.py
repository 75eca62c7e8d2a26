"""What the file tools do for a session in its folders."""

import ctypes
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.builtin.files import disk
from holdfast.builtin.files.roots import Roots
from holdfast.builtin.files.search import fits
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


async def test_a_file_is_read_by_a_relative_or_an_absolute_path(folder: Path):
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


async def test_a_long_file_is_read_in_parts_that_make_the_whole(folder: Path):
    text = "".join(f"line {number}\n" for number in range(5000))
    (folder / "long.txt").write_text(text)
    files = Files(folder)

    read, line = "", 1
    while line:
        part = await files.call("read", path="long.txt", first_line=line, lines=1999)
        read, line = read + part["text"], part.get("next_line", 0)

    assert read == text


async def test_one_endless_line_is_cut_and_a_file_too_large_is_refused(folder: Path):
    (folder / "line").write_text("x" * 1_000_000)
    (folder / "large").write_bytes(b"x" * (4 * 1024 * 1024 + 1))

    read = await Files(folder).call("read", path="line")

    assert len(read["text"]) == 256 * 1024
    assert await Files(folder).refused("read", path="large") == (
        "FILE_TOO_LARGE",
        "'large' has 4194305 bytes; files of up to 4194304 bytes can be read.",
    )


async def test_a_binary_file_is_named_as_such_and_never_overwritten(folder: Path):
    files = Files(folder)
    (folder / "latin").write_bytes("Grüße".encode("latin-1"))

    assert await files.refused("read", path="picture.png") == (
        "NOT_TEXT",
        "'picture.png' is a binary file (8 bytes), not text in UTF-8.",
    )
    assert await files.code("read", path="latin") == "NOT_TEXT"
    assert await files.code("write", path="picture.png", text="") == "NOT_TEXT"
    assert (folder / "picture.png").read_bytes() == b"\x89PNG\r\n\0\0"


async def test_what_is_no_file_is_not_waited_for(folder: Path):
    os.mkfifo(folder / "pipe")
    files = Files(folder)

    assert await files.refused("read", path="pipe") == ("NOT_A_FILE", "'pipe' is no ordinary file.")
    assert await files.refused("read", path="src") == ("NOT_A_FILE", "'src' is a folder.")
    assert await files.refused("read", path="gone") == ("NO_FILE", "There is no file 'gone'.")
    assert await files.code("read", path="gone/too") == "NO_FILE"
    assert await files.code("read", path="README.md/x") == "NOT_A_FILE"
    assert await files.code("write", path="src", text="") == "NOT_A_FILE"
    assert await files.code("write", path="pipe", text="") == "NOT_A_FILE"
    assert await files.code("list", path="README.md") == "NOT_A_FILE"


async def test_write_makes_a_file_and_its_folders_and_shows_what_it_did(folder: Path):
    told = await Files(folder).call("write", path="docs/new/page.md", text="hello\n")

    assert (folder / "docs" / "new" / "page.md").read_text() == "hello\n"
    assert told == {
        "path": "docs/new/page.md",
        "created": True,
        "diff": {"path": str(folder / "docs/new/page.md"), "old_text": None, "new_text": "hello\n"},
    }


async def test_write_replaces_whole_and_keeps_the_mode_and_leaves_nothing_beside(folder: Path):
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    before = script.stat().st_ino

    told = await Files(folder).call("write", path="run.sh", text="#!/bin/sh\nexit 0\n")

    assert (script.read_text(), script.stat().st_mode & 0o7777) == ("#!/bin/sh\nexit 0\n", 0o755)
    assert script.stat().st_ino != before, "whoever had it open keeps the old text, whole"
    assert (told["created"], told["diff"]["old_text"]) == (False, "#!/bin/sh\n")
    assert sorted(os.listdir(folder)) == ["README.md", "picture.png", "run.sh", "src"]


async def test_a_write_that_fails_changes_nothing_and_leaves_nothing(folder: Path):
    files = Files(folder)

    assert await files.code("write", path="README.md", text="x" * (4 * 1024 * 1024 + 1)) == "FILE_TOO_LARGE"
    assert await files.code("write", path="README.md", text="half \ud800") == "BAD_ARGUMENT"
    assert (folder / "README.md").read_text().startswith("# Notes")
    assert sorted(os.listdir(folder)) == ["README.md", "picture.png", "src"]


async def test_an_editor_is_not_sent_more_than_a_file_may_have(folder: Path):
    path = str(folder / "README.md")
    editor = Buffers({path: "TODO"})
    files = Files(folder, door=editor)
    long = "x" * (4 * 1024 * 1024 + 1)

    assert await files.code("write", path="README.md", text=long) == "FILE_TOO_LARGE"
    assert await files.code("edit", path="README.md", old="TODO", new=long) == "FILE_TOO_LARGE"
    assert editor.texts == {path: "TODO"}


def test_a_file_that_may_not_be_written_is_not_replaced():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o777)
        (folder / "kept.md").write_text("kept")
        (folder / "kept.md").chmod(0o444)
        (folder / "free.md").write_text("free")
        (folder / "free.md").chmod(0o666)
        with ThreadPoolExecutor(1) as nobody:
            codes = nobody.submit(_written_by_nobody, folder, "kept.md", "free.md").result()

        assert codes == ["FILE_TROUBLE", "OK"]
        assert [(folder / name).read_text() for name in ("kept.md", "free.md")] == ["kept", "new"]


def _written_by_nobody(folder: Path, *names: str) -> list[str]:
    """Whoever may do anything is not asked for permission: this thread gives that up, and ends."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).setfsuid(65534)
    roots = Roots((str(folder),))
    answers: list[str] = []
    for name in names:
        try:
            disk.write(roots, name, "new", disk.read(roots, name))
            answers.append("OK")
        except HoldfastError as error:
            answers.append(error.code.name)
    return answers


async def test_edit_replaces_the_one_place_that_fits_to_the_letter(folder: Path):
    told = await Files(folder).call("edit", path="README.md", old="TODO: write more", new="Done.")

    assert (folder / "README.md").read_text() == "# Notes\n\nDone.\n"
    assert (told["replaced"], told["diff"]) == (
        1,
        {
            "path": str(folder / "README.md"),
            "old_text": "# Notes\n\nTODO: write more\n",
            "new_text": "# Notes\n\nDone.\n",
        },
    )


async def test_an_edit_that_is_not_clear_is_refused_with_what_there_is(folder: Path):
    files = Files(folder)
    (folder / "twice").write_text("a = 1\nb = 2\na = 1\n")
    (folder / "dos").write_bytes(b"one\r\ntwo\r\n")

    assert await files.refused("edit", path="twice", old="a = 1", new="a = 2") == (
        "SEVERAL_MATCHES",
        "'twice' has this text 2 times, at lines 1, 3. Nothing was changed.",
    )
    assert await files.refused("edit", path="twice", old="c = 3", new="") == (
        "NO_MATCH",
        "'twice' does not have this text. Nothing was changed.",
    )
    assert (
        "its blanks or line ends differ"
        in (await files.refused("edit", path="twice", old="a  = 1\nb", new=""))[1]
    )
    assert r"its lines end with \r\n" in (await files.refused("edit", path="dos", old="one\ntwo", new=""))[1]
    assert await files.code("edit", path="twice", old="", new="x") == "NO_MATCH"
    assert await files.code("edit", path="twice", old="a", new="a") == "NO_MATCH"
    assert await files.code("edit", path="gone", old="a", new="b") == "NO_FILE"
    assert (folder / "twice").read_text() == "a = 1\nb = 2\na = 1\n"
    assert (await files.call("edit", path="twice", old="a = 1", new="a = 2", all=True))["replaced"] == 2
    assert (folder / "twice").read_text() == "a = 2\nb = 2\na = 2\n"


async def test_the_diff_of_a_long_file_has_the_lines_that_differ_and_a_few_around(folder: Path):
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))

    told = await Files(folder).call("edit", path="long.txt", old="line 2500\n", new="another\n")

    around = ["line 2497\n", "line 2498\n", "line 2499\n"], ["line 2501\n", "line 2502\n", "line 2503\n"]
    assert told["diff"]["old_text"] == "".join([*around[0], "line 2500\n", *around[1]])
    assert told["diff"]["new_text"] == "".join([*around[0], "another\n", *around[1]])


async def test_list_shows_what_is_there_and_of_what_kind(folder: Path):
    (folder / "link").symlink_to("/etc")

    told = await Files(folder).call("list")

    assert told == {
        "folder": ".",
        "entries": [
            {"name": "README.md", "kind": "file", "size": 26},
            {"name": "link", "kind": "link"},
            {"name": "picture.png", "kind": "file", "size": 8},
            {"name": "src", "kind": "folder"},
        ],
    }


async def test_find_goes_by_name_and_by_text(folder: Path):
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


async def test_find_stops_at_its_limit_and_says_so(folder: Path):
    for number in range(30):
        (folder / f"{number:02}.txt").write_text("x\n" * 10)

    told = await Files(folder).call("find", glob="*.txt", text="x", limit=25)

    assert (len(told["found"]), told["cut"]) == (
        25,
        "Only the first 25 are shown. Look for something narrower.",
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
def test_globs_mean_what_they_mean_elsewhere_and_never_take_long(path: str, pattern: str, expected: bool):
    assert fits(path.split("/"), pattern.split("/")) is expected


@pytest.mark.promise("ACP-15")
async def test_unsaved_text_is_read_and_edited_where_the_editor_has_it(folder: Path):
    buffer = str(folder / "README.md")
    editor = Buffers({buffer: "unsaved\n"})
    files = Files(folder, door=editor)

    read = await files.call("read", path="src/../README.md")
    edited = await files.call("edit", path="README.md", old="unsaved", new="edited")

    assert read["text"] == "unsaved\n"
    assert edited["diff"] == {"path": buffer, "old_text": "unsaved\n", "new_text": "edited\n"}
    assert editor.texts == {buffer: "edited\n"}
    assert (folder / "README.md").read_text().startswith("# Notes"), "saving is the editor's business"


async def test_what_the_editor_does_not_have_is_read_from_disk_and_a_write_it_refuses_is_told(folder: Path):
    files = Files(folder, door=Buffers({}))

    assert (await files.call("read", path="README.md"))["text"].startswith("# Notes")
    assert await files.refused("write", path="README.md", text="x") == (
        "EDITOR_REFUSED",
        "The editor did not write 'README.md': Not in the project.",
    )
    assert (folder / "README.md").read_text().startswith("# Notes")


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("code", [codes.PEER_ERROR, codes.BAD_ANSWER, codes.TIMEOUT])
async def test_a_file_whose_unsaved_text_is_not_known_is_not_changed(folder: Path, code: Code):
    files = Files(folder, door=Buffers({}, writes=False, fails=HoldfastError(code, "no idea")))

    refused = [
        await files.refused("write", path="README.md", text="x"),
        await files.refused("edit", path="README.md", old="TODO", new="DONE"),
    ]

    assert refused == [("EDITOR_REFUSED", "The editor did not read 'README.md': no idea.")] * 2
    assert "TODO" in (folder / "README.md").read_text()


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize(
    ("code", "read", "made"),
    [
        (codes.PEER_ERROR, "OK", "OK"),
        (codes.BAD_ANSWER, "EDITOR_REFUSED", "EDITOR_REFUSED"),
        (codes.TIMEOUT, "EDITOR_REFUSED", "EDITOR_REFUSED"),
    ],
)
async def test_an_editor_that_only_says_no_may_mean_that_it_has_no_such_file(
    folder: Path, code: Code, read: str, made: str
):
    """Not every editor has a number of its own for that; what is only read, or is nowhere yet, is left to the disk."""
    files = Files(folder, door=Buffers({}, writes=False, fails=HoldfastError(code, "no idea")))

    assert await files.code("read", path="README.md") == read
    assert await files.code("write", path="new.md", text="x") == made
    assert (folder / "new.md").exists() is (made == "OK")


async def test_an_editor_that_only_reads_leaves_writing_to_the_disk(folder: Path):
    editor = Buffers({str(folder / "README.md"): "unsaved\n"}, writes=False)

    await Files(folder, door=editor).call("edit", path="README.md", old="unsaved", new="edited")

    assert (folder / "README.md").read_text() == "edited\n"


async def test_a_search_of_the_sessions_folder_names_the_directories_that_it_left_out(
    folder: Path, tmp_path: Path
):
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
