"""Attack 65: another user of the machine writes into the data folder, or puts another folder in its place."""

from pathlib import Path

import pytest

from holdfast.host import composition
from holdfast.host.data_folder import check_data_folder
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.resolve.protected_paths import paths_hidden_from_sandboxes
from holdfast.settings import Settings, load
from holdfast.workspaces.registry import Registry


def load_settings(folder: Path, data_dir: Path) -> Settings:
    (folder / "config.toml").touch()
    return load(folder / "config.toml", {"HOLDFAST_DATA_DIR": str(data_dir)})


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o1777])
def test_folder_that_others_can_write_is_refused_until_the_advice_is_followed(
    tmp_path: Path, mode: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)

    with pytest.raises(HoldfastError, match="Other users can change the data folder") as caught:
        check_data_folder(data)
    assert caught.value.details == {"hint": f"Run: chmod go-w {data.resolve()}"}

    data.chmod(mode & ~0o022)
    check_data_folder(data)


def test_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "shared" / "data"
    data.mkdir(parents=True)
    data.parent.chmod(0o777)

    with pytest.raises(HoldfastError, match="Other users can replace the data folder"):
        check_data_folder(data)


@pytest.mark.anyio
async def test_host_does_not_open_such_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)

    with pytest.raises(HoldfastError, match="Other users can change the data folder"):
        async with Host(settings=load_settings(tmp_path, tmp_path / "data")):
            pass


def accept(_: Path) -> None:
    return


@pytest.mark.anyio
async def test_control_without_the_check_the_host_obeys_what_others_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "check_data_folder", accept)
    data, project = tmp_path / "data", tmp_path / "project"
    project.mkdir()
    Registry(data / "workspaces").add(project, "theirs", trust=Trust.SANDBOXED)
    data.chmod(0o777)

    async with Host(settings=load_settings(tmp_path, data)) as host:
        assert await host.trust_of(OpenOptions(cwd=project)) is Trust.SANDBOXED


@pytest.mark.promise("BOX-06")
def test_links_on_the_way_to_the_data_folder_are_hidden_from_sandboxes(tmp_path: Path) -> None:
    real, project = tmp_path.resolve() / "real", tmp_path.resolve() / "project"
    (real / "data").mkdir(parents=True)
    project.mkdir()
    (project / "link").symlink_to("../real")

    hidden = paths_hidden_from_sandboxes(load_settings(tmp_path, project / "link" / "data"))

    assert {str(real / "data"), str(project / "link")} <= set(hidden)
