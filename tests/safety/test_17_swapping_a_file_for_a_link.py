"""Attack 17 against the file tools: a file, or a folder above it, is swapped for a link during calls."""

import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast.toolkit.outcome import Ok
from tests.builtin.support import Files
from tests.safety.repeats import REPEATS
from tests.safety.swapping import swapping

pytestmark = pytest.mark.anyio

SECRET = "a secret"
ROUNDS = 300 * REPEATS


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


@pytest.mark.slow
@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("swapped", ["folder", "folder/file", "."], ids=["a folder", "the file", "the root"])
async def test_swapped_path_never_reads_or_writes_outside(root: Path, outside: Path, swapped: str):
    target = {"folder": outside / "folder", "folder/file": outside / "folder" / "file", ".": outside}[swapped]
    files = Files(root)
    seen: Counter[str] = Counter()

    with swapping(root / swapped if swapped != "." else root, target):
        for _ in range(ROUNDS):
            envelope = await files._envelope("read", {"path": "folder/file"})
            seen[json.loads(envelope.data)["text"] if isinstance(envelope, Ok) else envelope.code] += 1
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
