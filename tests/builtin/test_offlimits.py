"""Which places the file tools stay out of."""

from pathlib import Path

from holdfast.builtin.files.offlimits import off_limits


def test_a_place_is_known_by_its_path_and_all_that_is_below(tmp_path: Path):
    own = off_limits(["/home/me/.holdfast", "/home/me/config.toml"])

    told = {path: own.has(path) for path in (
        "/home/me/.holdfast", "/home/me/.holdfast/keys/k", "/home/me/.holdfast-not", "/home/me",
        "/home/me/config.toml", "/home/me/config.toml.bak",
    )}  # fmt: skip

    assert [path for path, has in told.items() if has] == [
        "/home/me/.holdfast", "/home/me/.holdfast/keys/k", "/home/me/config.toml",
    ]  # fmt: skip


def test_a_folder_is_known_wherever_a_mount_shows_it(tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    own = off_limits([str(tmp_path / "own")])

    assert own.has("/mnt/elsewhere", (tmp_path / "own").stat())
    assert not own.has("/mnt/elsewhere", (tmp_path / "other").stat())
