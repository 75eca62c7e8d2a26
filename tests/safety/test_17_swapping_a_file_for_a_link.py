"""Attack 17 against the file tools: a file, or a folder above it, is swapped for a link during calls."""

import contextlib
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builtin.support import Files

pytestmark = pytest.mark.anyio

SECRET = "a secret"
ROUNDS = 1500


@contextmanager
def swapping(path: Path, target: Path) -> Iterator[None]:
    """Replace the path by a link to the target, and back, as fast as possible."""
    spare, stop, dice = path.with_name("spare"), threading.Event(), random.Random(17)

    def swap() -> None:
        while not stop.is_set():
            path.rename(spare)
            with contextlib.suppress(FileExistsError):  # a concurrent write has created a new file there
                path.symlink_to(target)
            stop.wait(dice.random() * 0.0005)
            while spare.exists():
                _remove(path)
                with contextlib.suppress(OSError):
                    spare.rename(path)
            stop.wait(dice.random() * 0.0005)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "file").write_text(SECRET)
    return outside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "parent" / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_text("mine")
    return root


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("swapped", ["folder", "folder/file", "."], ids=["a folder", "the file", "the root"])
async def test_swapped_path_never_reads_or_writes_outside(root: Path, outside: Path, swapped: str):
    target = {"folder": outside / "folder", "folder/file": outside / "folder" / "file", ".": outside}[swapped]
    files = Files(root)
    seen: Counter[str] = Counter()

    with swapping(root / swapped if swapped != "." else root, target):
        for _ in range(ROUNDS):
            envelope = await files._envelope("read", {"path": "folder/file"})
            seen[str(getattr(envelope, "data", {}).get("text") or getattr(envelope, "code", ""))] += 1
            await files.code("write", path="folder/file", text="mine")

    assert seen[SECRET] == 0
    assert {path.name: path.read_text() for path in (outside / "folder").iterdir()} == {"file": SECRET}
    assert seen["mine"] > 0, "no read succeeded"
    assert sum(seen.values()) - seen["mine"] > 0, "no call met a swapped path"


async def test_check_by_path_then_open_by_path_reads_outside(root: Path, outside: Path):
    """Control: resolve, compare, open."""
    path, seen = root / "folder" / "file", Counter[str]()

    with swapping(root / "folder", outside / "folder"):
        for _ in range(200_000):
            try:
                if path.resolve().is_relative_to(root):
                    seen[path.read_text()] += 1
            except OSError:
                continue
            if seen[SECRET]:
                break

    assert seen[SECRET] == 1
