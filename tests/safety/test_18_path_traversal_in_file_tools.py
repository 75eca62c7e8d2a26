"""Attack 18 against the file tools: `..`, absolute, percent-encoded and NUL paths, and links."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.builtin.support import Buffers, Files

pytestmark = pytest.mark.anyio

SECRET = "out of reach"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (root / "absolute").symlink_to(outside / "secret")
    (root / "relative").symlink_to("../outside/secret")
    (root / "folder link").symlink_to(outside)
    (root / "chain").symlink_to("folder/step")
    (root / "folder" / "step").symlink_to("../relative")
    (root / "process").symlink_to(f"/proc/self/root{outside}/secret")
    (root / "new").symlink_to(outside / "new")
    return root


def attacks(root: Path) -> dict[str, str]:
    outside = root.parent / "outside"
    return {
        "dots": "../outside/secret",
        "dots in the middle": "folder/../../outside/secret",
        "dots after a missing folder": "none/../../outside/secret",
        "absolute": str(outside / "secret"),
        "absolute with dots": f"{root}/../outside/secret",
        "same prefix": f"{root}-not/../outside/secret",
        "through /proc/self/root": f"/proc/self/root{outside}/secret",
        "through /proc/self/cwd": f"/proc/self/cwd{'/..' * 20}{outside}/secret",
        "encoded": "%2e%2e/outside/secret",
        "encoded with slashes": "%2e%2e%2foutside%2fsecret",
        "encoded twice": "..%252foutside",
        "a file URL": f"file://{outside}/secret",
        "NUL": "../outside/secret\0.txt",
        "NUL inside": "folder\0/../../outside/secret",
        "a link": "absolute",
        "a relative link": "relative",
        "a chain of links": "chain",
        "through a linked folder": "folder link/secret",
        "a link through /proc": "process",
    }


@pytest.mark.promise("ACP-15")
async def test_no_path_reads_outside_the_root(root: Path):
    files = Files(root)

    codes = {name: await files.code("read", path=path) for name, path in attacks(root).items()}

    assert set(codes.values()) <= {"OUTSIDE_ROOTS", "BAD_PATH", "NO_FILE"}, codes
    assert sum(code == "OUTSIDE_ROOTS" for code in codes.values()) >= 11, codes


@pytest.mark.promise("ACP-15")
async def test_no_path_writes_lists_or_searches_outside_the_root(root: Path):
    files = Files(root)
    before = _read_all(root.parent / "outside")

    for path in [*attacks(root).values(), "new", "folder link/new"]:
        assert await files.code("write", path=path, text="mine") != "OK", path
        assert await files.code("edit", path=path, old=SECRET, new="mine") != "OK", path
        assert await files.code("list", path=path.removesuffix("/secret")) != "OK", path
        assert await files.code("find", path=path.removesuffix("/secret"), text=SECRET) != "OK", path

    assert (await files.call("find", text=SECRET))["found"] == []
    assert _read_all(root.parent / "outside") == before


@pytest.mark.promise("ACP-15")
async def test_editor_gets_no_request_for_files_outside_the_root(root: Path):
    outside = root.parent / "outside" / "secret"
    editor = Buffers({str(outside): SECRET, **dict.fromkeys(attacks(root).values(), SECRET)})
    files = Files(root, door=editor)

    codes = {name: await files.code("read", path=path) for name, path in attacks(root).items()}
    for path in attacks(root).values():
        await files.code("write", path=path, text="mine")

    assert "OK" not in codes.values(), codes
    assert set(editor.texts.values()) == {SECRET}


async def test_links_inside_the_root_are_followed_to_read_but_not_to_change(root: Path):
    (root / "folder" / "file").write_text("mine")
    (root / "inside").symlink_to("folder/../folder/file")
    (root / "inside absolute").symlink_to(root / "folder" / "file")
    (root / "loop").symlink_to("loop")
    files = Files(root)

    code, message = await files.refused("write", path="inside", text="changed")

    assert (code, message.endswith("Use the path of the file itself: 'folder/file'.")) == ("BAD_PATH", True)
    assert (root / "inside").is_symlink()
    assert (await files.call("read", path="inside absolute"))["text"] == "mine"
    assert await files.code("read", path="loop") == "BAD_PATH"


async def test_check_that_compares_strings_reads_outside(root: Path):
    """Control: join, compare the prefix, open."""

    def naive(path: str) -> str:
        joined = str(root / unquote(path))
        if not joined.startswith(str(root)):
            return ""
        try:
            return Path(joined).read_text()
        except (OSError, ValueError):
            return ""

    out = [name for name, path in attacks(root).items() if naive(path) == SECRET]

    assert {"dots", "encoded", "a link", "a chain of links", "through a linked folder"} <= set(out)


def _read_all(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}
