"""Attack 17: a root is swapped for a symbolic link between check and start."""

import asyncio
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap import bwrap as backend
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from tests.safety.repeats import REPEATS
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

STARTS = 60 * REPEATS  # counting only those that passed the host's check


@contextmanager
def swapping(folder: Path, secrets: Path) -> Iterator[None]:
    """Replace the folder by a link to the secrets, and back, as fast as possible."""
    spare, stop, dice = folder.with_name("spare"), threading.Event(), random.Random(17)

    def swap() -> None:
        # Pauses of random length: some let a check pass, some end while a server starts.
        while not stop.wait(dice.random() * 0.01):
            folder.rename(spare)
            folder.symlink_to(secrets)
            stop.wait(dice.random() * 0.003)
            folder.unlink()
            spare.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def secrets(root: Path) -> Path:
    folder = root.parent / "secrets"
    folder.mkdir()
    (folder / "file").write_text("a secret")
    (root / "file").write_text("mine")
    return folder


@pytest.mark.slow
@pytest.mark.promise("BOX-02")
async def test_swapped_root_never_shows_the_other_folder(keeper: Keeper, root: Path, secrets: Path) -> None:
    spec = confined(ProcessSpec(argv=("cat", "file"), env=PATH, cwd=str(root)), root)
    seen: Counter[str] = Counter()

    def has_seen_all() -> bool:
        """Whether the link was met by a check, by a start after its check, and by neither."""
        return bool(seen["a secret"] or (seen["refused"] and seen["nothing"] and seen["mine"]))

    async def attack() -> None:
        while seen["mine"] + seen["nothing"] + seen["a secret"] < STARTS or not has_seen_all():
            try:
                seen[(await run(keeper, spec)).out or "nothing"] += 1
            except HoldfastError as error:
                seen["nothing" if "set up" in error.message else "refused"] += 1

    with swapping(root, secrets):
        await asyncio.gather(*(attack() for _ in range(3)))

    assert seen["a secret"] == 0
    assert seen["refused"] > 0, "no check met the link"
    assert seen["nothing"] > 0, "no start met the link after the check"
    assert seen["mine"] > 0, "no start succeeded"


async def test_control_check_by_path_then_bind_by_path_shows_the_other_folder(
    root: Path, secrets: Path
) -> None:
    assert not root.is_symlink()
    root.rename(root.with_name("spare"))
    root.symlink_to(secrets)

    shown = subprocess.run(
        ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
         "--bind", root, root, "/usr/bin/cat", root / "file"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert shown.stdout == "a secret"


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_root_that_became_a_link_is_refused(
    keeper: Keeper, root: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
) -> None:
    if not is_protected:
        monkeypatch.setattr(backend, "open_root", open_through_links)
    root.rename(root.with_name("spare"))
    root.symlink_to(secrets)
    spec = replace(
        confined(ProcessSpec(argv=("cat", str(secrets / "file")), env=PATH, cwd="/"), root), cwd="/"
    )

    try:
        seen = (await run(keeper, spec)).out
    except HoldfastError as error:
        seen = error.message

    assert ("symbolic link" in seen, seen == "a secret") == (is_protected, not is_protected)


def open_through_links(path: str, opener: PathOpener) -> OpenedPath:
    return opener.open(path, links="follow")
