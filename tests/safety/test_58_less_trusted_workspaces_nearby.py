"""Attack 58: a less trusted workspace inside, around or beside the folders of a more trusted session."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.trust import Trust
from holdfast.workspaces.registry import Overlap, Registry
from tests.connect.conftest import HostFactory, make_host
from tests.sandbox.support import bind_mount

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a folder `mine` and a folder `theirs`, each with a folder `inner`."""
    place = tmp_path.resolve() / "place"
    for name in ("mine", "theirs"):
        (place / name / "inner").mkdir(parents=True)
    return place


@pytest.mark.promise("RES-17")
async def test_session_is_no_more_trusted_than_any_workspace_it_can_reach(
    make_host: HostFactory, place: Path
):
    (place / "link").symlink_to("theirs/inner")
    _make_worktree(place / "theirs", place / "worktree")
    folders = [
        ("mine", "theirs"),
        ("mine", "theirs/inner"),
        ("mine", "link"),
        (".",),
        ("theirs/inner",),
        ("worktree",),
        ("mine", "worktree"),
        ("mine",),
    ]
    async with make_host({}) as host:
        host.registry.add(place / "mine", trust=Trust.DIRECT)
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        trusts = [await _trust(host, *(place / name for name in names)) for names in folders]

    assert trusts == [*[Trust.SANDBOXED] * 7, Trust.DIRECT]


@pytest.mark.promise("RES-17")
@pytest.mark.parametrize("shown", ["theirs", "theirs/inner", "."])
async def test_bind_mount_of_a_workspace_counts_as_the_workspace(
    make_host: HostFactory, place: Path, shown: str
):
    alias = place.parent / "alias"
    (alias / "inner").mkdir(parents=True)
    async with make_host({}) as host:
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        before = await _trust(host, alias)
        with bind_mount(place / shown, alias / "inner"):
            trusts = [await _trust(host, path) for path in (alias, alias / "inner")]

    assert (before, trusts) == (Trust.DIRECT, [Trust.SANDBOXED, Trust.SANDBOXED])


@pytest.mark.promise("RES-17")
async def test_direct_workspace_inside_a_sandboxed_one_is_sandboxed(make_host: HostFactory, place: Path):
    async with make_host({}) as host:
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        host.registry.add(place / "theirs" / "inner", trust=Trust.DIRECT)
        assert await _trust(host, place / "theirs" / "inner") is Trust.SANDBOXED


@pytest.mark.promise("RES-17")
async def test_workspace_with_an_invalid_file_counts_as_sandboxed(make_host: HostFactory, place: Path):
    async with make_host({}) as host:
        workspace = host.registry.add(place / "theirs", trust=Trust.DIRECT)
        file = host.registry.file_of(workspace.slug)
        file.write_text(file.read_text() + "nonsense = 1\n")
        assert await _trust(host, place / "mine", place / "theirs") is Trust.SANDBOXED


@pytest.mark.promise("RES-17")
async def test_workspace_that_was_added_later_counts_when_a_session_is_opened_again(
    make_host: HostFactory, place: Path
):
    options = OpenOptions(cwd=place / "mine", roots=(str(place / "theirs" / "inner"),))
    async with make_host({}) as host:
        session = await host.open(options)
        before = session.context.trust_level
        await session.close()
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        again = await host.reopen(session.context.session_id, options)
        await again.close()

    assert (before, again.context.trust_level) == (Trust.DIRECT, Trust.SANDBOXED)


async def test_folders_that_only_look_alike_change_nothing(make_host: HostFactory, place: Path):
    (place / "theirs-too").mkdir()
    async with make_host({}) as host:
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        assert await _trust(host, place / "mine", place / "theirs-too") is Trust.DIRECT


@pytest.mark.promise("RES-17")
async def test_user_is_told_which_workspace_lowers_the_trust(make_host: HostFactory, place: Path):
    async with make_host({}) as host:
        host.registry.add(place / "mine", trust=Trust.DIRECT)
        theirs = host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        file = host.registry.file_of(theirs.slug)
        session = await host.open(OpenOptions(cwd=place / "mine", roots=(str(place / "theirs" / "inner"),)))
        warnings = [(warning.folder, warning.text) for warning in session.warnings]
        await session.close()
        file.write_text(file.read_text().replace("sandboxed", "direct"))  # as the warning says
        assert await _trust(host, place / "mine", place / "theirs" / "inner") is Trust.DIRECT

    assert warnings == [
        (
            str(place / "theirs" / "inner"),
            (
                f"This folder belongs to the workspace 'theirs' ({place / 'theirs'}), which is sandboxed. So the session is"
                f' sandboxed, too. For a direct session, use another folder, or write trust = "direct" in {file}'
            ),
        )
    ]


async def test_control_by_the_innermost_workspace_of_its_folder_the_session_is_direct(
    make_host: HostFactory, place: Path, monkeypatch: pytest.MonkeyPatch
):
    def none(registry: Registry, roots: Iterable[str]) -> tuple[Overlap, ...]:
        return ()

    monkeypatch.setattr(Registry, "find_overlaps", none)
    async with make_host({}) as host:
        host.registry.add(place / "mine", trust=Trust.DIRECT)
        host.registry.add(place / "theirs", trust=Trust.SANDBOXED)
        trusts = [await _trust(host, place / "mine", place / "theirs"), await _trust(host, place)]

    assert trusts == [Trust.DIRECT, Trust.DIRECT]


async def _trust(host: Host, cwd: Path, *also: Path) -> Trust:
    session = await host.open(OpenOptions(cwd=cwd, roots=tuple(map(str, also))))
    await session.close()
    return session.context.trust_level


def _make_worktree(repository: Path, worktree: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository), *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(worktree))
