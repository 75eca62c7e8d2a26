"""Attack 53: a browser that a page has taken over puts links into its own folder, so that the host reads or writes files elsewhere."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.builtin.stage import files as stage_files
from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.builtin.stage.files import SessionFiles, make_folder_in_browser
from holdfast.model.errors import HoldfastError
from holdfast.sandbox.user_and_group import NOBODY

SECRET = "the user's secret"


class Places:
    """The browser's folder, the session's folder, and a folder of the user's that neither may reach."""

    def __init__(self, base: Path) -> None:
        self.browser = BrowserFolder(base / "browsers").path
        self.session = base / "session"
        self.outside = base / "outside"
        for folder in (self.session, self.outside):
            folder.mkdir()
        (self.session / "upload").write_text("content")
        (self.outside / "secret").write_text(SECRET)
        self.files = SessionFiles(roots=(str(self.session),))

    def all_outside(self) -> list[str]:
        return sorted(str(path.relative_to(self.outside)) for path in self.outside.rglob("*"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path.resolve())


def link(path: str, target: str) -> Callable[[Places], None]:
    """The browser makes this path in its folder a link to a path in the user's folder."""

    def plant(places: Places) -> None:
        place = places.browser / path
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(places.outside / target)

    return plant


def plant_nothing(places: Places) -> None:
    """The browser changes nothing in its folder."""


def plant_fifo(places: Places) -> None:
    os.mkfifo(places.browser / "downloads" / "fifo")


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize(
    "plant",
    [
        link("uploads/s1-1", "."),
        link("uploads/s1-1/0", "."),
        link("uploads/s1-1/0/upload", "new"),
        link("uploads/s1-1/0/upload", "secret"),
        link("uploads", "."),
    ],
)
def test_uploads_are_not_written_through_links_of_the_browser(
    places: Places, plant: Callable[[Places], None]
):
    plant(places)

    with pytest.raises(HoldfastError):
        places.files.copy_in(["upload"], places.browser, "uploads/s1-1")

    assert (places.all_outside(), (places.outside / "secret").read_text()) == (["secret"], SECRET)


def test_control_a_copy_by_path_is_written_through_the_link(places: Places):
    link("uploads/s1-1", ".")(places)

    (places.browser / "uploads" / "s1-1" / "0").mkdir(parents=True)
    shutil.copyfile(places.session / "upload", places.browser / "uploads" / "s1-1" / "0" / "upload")

    assert places.all_outside() == ["0", "0/upload", "secret"]


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize(
    ("plant", "download"),
    [
        (link("downloads/s1/guid", "secret"), "guid"),
        (link("downloads/s1", "."), "secret"),
        (plant_nothing, "../../../../outside/secret"),  # the browser names its downloads, too
        (plant_fifo, "../fifo"),
    ],
)
def test_downloads_are_not_read_through_links_of_the_browser(
    places: Places, plant: Callable[[Places], None], download: str
):
    plant(places)

    with pytest.raises((HoldfastError, OSError)):
        places.files.copy_out(places.browser, f"downloads/s1/{download}", "saved")

    assert not (places.session / "saved").exists()


def test_control_a_download_read_by_path_is_the_secret(places: Places):
    link("downloads/s1/guid", "secret")(places)

    assert (places.browser / "downloads" / "s1" / "guid").read_text() == SECRET


@pytest.mark.promise("STG-14")
def test_folder_for_downloads_is_not_made_through_a_link(places: Places):
    link("downloads", ".")(places)

    with pytest.raises(HoldfastError, match="put links in their place"):
        make_folder_in_browser(places.browser, "downloads/s1")

    assert places.all_outside() == ["secret"]


@pytest.mark.promise("STG-14")
def test_copies_are_limited_and_leave_nothing_if_they_are_too_long(
    places: Places, monkeypatch: pytest.MonkeyPatch
):
    make_folder_in_browser(places.browser, "downloads/s1")
    (places.browser / "downloads" / "s1" / "guid").write_text("content")
    monkeypatch.setattr(stage_files, "MAX_DOWNLOAD_BYTES", 6)

    with pytest.raises(HoldfastError, match="too large"):
        places.files.copy_out(places.browser, "downloads/s1/guid", "saved")
    left = (places.session / "saved").exists()
    monkeypatch.setattr(stage_files, "MAX_DOWNLOAD_BYTES", 7)
    places.files.copy_out(places.browser, "downloads/s1/guid", "saved")

    assert (left, (places.session / "saved").read_text()) == (False, "content")


@pytest.mark.promise("STG-14")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_copies_that_root_makes_belong_to_the_owner_of_their_folder(places: Places):
    for path in (places.browser / "uploads", places.browser / "downloads", places.session):
        os.chown(path, NOBODY, NOBODY)
    make_folder_in_browser(places.browser, "downloads/s1")
    (places.browser / "downloads" / "s1" / "guid").write_text("content")

    (copy,) = places.files.copy_in(["upload"], places.browser, "uploads/s1-1")
    saved = places.files.copy_out(places.browser, "downloads/s1/guid", "saved")
    made = [Path(copy), *[*Path(copy).parents][:2], Path(saved), places.browser / "downloads" / "s1"]

    assert {path.stat().st_uid for path in made} == {NOBODY}
    assert Path(copy).read_text() == Path(saved).read_text() == "content"
