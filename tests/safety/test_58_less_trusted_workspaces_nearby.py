"""Attack 58: a less trusted workspace inside, around or beside the folders of a more trusted session."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.workspaces import registry as registry_module
from holdfast.workspaces.bindings import read_bindings, write_bindings
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
                f"This folder belongs to the workspace 'theirs' ({place / 'theirs'}), which is sandboxed, so this session is"
                f' sandboxed as well. For a direct session, use another folder, or write trust = "direct" in {file}'
            ),
        )
    ]


async def test_user_is_told_to_correct_an_invalid_file_that_lowers_the_trust(
    make_host: HostFactory, place: Path
):
    async with make_host({}) as host:
        host.registry.add(place / "mine", trust=Trust.DIRECT)
        theirs = host.registry.add(place / "theirs", trust=Trust.DIRECT)
        file = host.registry.file_of(theirs.slug)
        valid = file.read_text()
        file.write_text(f"{valid}colour = 1\n")
        session = await host.open(OpenOptions(cwd=place / "mine", roots=(str(place / "theirs" / "inner"),)))
        (warning,) = session.warnings
        await session.close()
        file.write_text(valid)  # as the warning says
        assert await _trust(host, place / "mine", place / "theirs" / "inner") is Trust.DIRECT

    assert warning.text == (
        f"This folder belongs to the workspace 'theirs' ({place / 'theirs'}), whose file cannot be used, so this session is"
        f" sandboxed. For a direct session, use another folder, or correct {file}"
    )


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


@pytest.mark.promise("RES-17")
async def test_folder_of_a_removed_workspace_does_not_belong_to_a_later_one_of_the_same_name(
    make_host: HostFactory, place: Path
):
    async with make_host({}) as host:
        registry = host.registry
        registry.add(place / "mine", "Blog")
        registry.bind(str(place / "theirs"), "blog")
        stale = read_bindings(registry.file_of("blog").parent)
        registry.remove("blog")
        later = registry.add(place / "mine" / "inner", "Blog", trust=Trust.DIRECT)
        found = registry.find(str(place / "theirs"))
        # The control: with the slug of the removed workspace, and its old bindings, the folder would belong to the later one.
        write_bindings(registry.file_of("blog").parent, replace(stale, slug_folders={}))
        registry.file_of(later.slug).rename(registry.file_of("blog"))
        control = registry.find(str(place / "theirs"))

    assert later.slug == "blog-2"
    assert (found, control and control.slug) == (None, "blog")


def _replace_by_link(file: Path, text: str) -> None:
    target = file.parent.parent / "dotfiles.toml"
    target.write_text(text)
    file.unlink()
    file.symlink_to(target)


def _replace_by_fifo(file: Path, text: str) -> None:
    file.unlink()
    os.mkfifo(file)


def _edit(edit: Callable[[str], str]) -> Callable[[Path, str], None]:
    def write(file: Path, text: str) -> None:
        edited = edit(text)
        assert edited != text
        file.write_text(edited)

    return write


# Defects after which the file does not say which folder its workspace is.
LOST_FOLDERS: dict[str, Callable[[Path, str], object]] = {
    "all users can write it": lambda file, text: file.chmod(0o666),
    "a link, as dotfiles managers make": _replace_by_link,
    "a FIFO": _replace_by_fifo,
    "too large": _edit(lambda text: text + "#" * 70_000),
    "UTF-16": lambda file, text: file.write_bytes(text.encode("utf-16")),
    "no quotes": _edit(
        lambda text: text.replace('path = "', "path = ").replace('theirs"\ntrust', "theirs\ntrust")
    ),
    "misspelled key": _edit(lambda text: text.replace("path =", "paht =")),
    "home folder as ~": _edit(lambda text: text.replace('path = "', 'path = "~')),
    "two paths": _edit(lambda text: f'path = "/other"\n{text}'),
    "two paths, one with a quoted key": _edit(lambda text: f"'path' = '/other'\n{text}"),
    "path only in a table, and a mistake": _edit(
        lambda text: text.replace("path =", "paht =") + '[a]\npath = "/other"\n[['
    ),
    "empty": _edit(lambda text: ""),
}


@pytest.mark.promise("RES-17")
async def test_no_session_is_opened_while_the_folder_of_a_workspace_is_unknown(
    make_host: HostFactory, place: Path
):
    async with make_host({}) as host:
        file = host.registry.file_of(host.registry.add(place / "theirs").slug)
        text = file.read_text()
        before = await _trust(host, place / "mine")
        for break_file in LOST_FOLDERS.values():
            break_file(file, text)
            for folder in ("theirs", "mine"):
                with pytest.raises(HoldfastError, match=f"(?s){file}.*no session can be opened") as caught:
                    await _trust(host, place / folder)
                assert caught.value.code is codes.BAD_WORKSPACE_FILE
            file.unlink()
            file.write_text(text)
            file.chmod(0o600)
        after = await _trust(host, place / "mine")

    assert (before, after) == (Trust.DIRECT, Trust.DIRECT)


@pytest.mark.promise("RES-17")
async def test_mistakes_that_leave_the_path_readable_concern_one_workspace_only(
    make_host: HostFactory, place: Path
):
    mistakes = ("\nfoo = 1\n", "\n[[[", "\ntrust = 'nonsense'\n")
    async with make_host({}) as host:
        file = host.registry.file_of(host.registry.add(place / "theirs").slug)
        text = file.read_text()
        for mistake in mistakes:
            file.write_text(text.replace("path =", '"path" =') + mistake)
            with pytest.raises(HoldfastError) as caught:
                await _trust(host, place / "theirs" / "inner")
            assert caught.value.code is codes.BAD_WORKSPACE_FILE
            assert await _trust(host, place / "mine") is Trust.DIRECT


@pytest.mark.promise("RES-17")
async def test_file_that_the_users_own_group_can_write_is_used(make_host: HostFactory, place: Path):
    async with make_host({}) as host:
        file = host.registry.file_of(host.registry.add(place / "theirs").slug)
        file.chmod(0o664)  # as with the umask 002, where each user has a private group
        os.chown(file, -1, os.getegid())
        trusts = [await _trust(host, place / folder) for folder in ("theirs", "mine")]

    assert trusts == [Trust.SANDBOXED, Trust.DIRECT]


@pytest.mark.promise("RES-17")
async def test_workspace_whose_path_is_a_link_follows_it_while_the_host_runs(
    make_host: HostFactory, place: Path
):
    async with make_host({}) as host:
        trusts = await _trusts_after_retargeting(host, place)
        (place / "current").unlink()
        (place / "current").symlink_to(host.registry.file_of("theirs").parent.parent)
        problems = [problem.message for problem in host.registry.invalid]

    assert trusts == [Trust.SANDBOXED, Trust.SANDBOXED]
    assert [message.partition("overlaps")[2][:28] for message in problems] == [" with Holdfast's data folder"]


async def test_control_a_resolved_path_that_is_cached_loses_the_folder(
    make_host: HostFactory, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Registry, "_locate", cache(Registry._locate))  # pyright: ignore[reportPrivateUsage]
    async with make_host({}) as host:
        assert await _trusts_after_retargeting(host, place) == [Trust.SANDBOXED, Trust.DIRECT]


async def test_control_without_the_check_for_unknown_folders_the_session_is_direct(
    make_host: HostFactory, place: Path, monkeypatch: pytest.MonkeyPatch
):
    def skip_unknown(entries: Iterable["registry_module._RegistryEntry"]) -> Iterator[tuple[Path, object]]:  # pyright: ignore[reportPrivateUsage]
        return ((entry.folder, entry) for entry in entries if entry.folder is not None)

    monkeypatch.setattr(registry_module, "_require_folders", skip_unknown)
    async with make_host({}) as host:
        file = host.registry.file_of(host.registry.add(place / "theirs").slug)
        file.chmod(0o666)
        assert await _trust(host, place / "theirs") is Trust.DIRECT


async def _trusts_after_retargeting(host: Host, place: Path) -> list[Trust]:
    """The trust of a session in the workspace's path, a link, before and after the link is changed."""
    (place / "next").mkdir()
    current = place / "current"
    current.symlink_to("theirs")
    file = host.registry.file_of(host.registry.add(place / "theirs").slug)
    file.write_text(file.read_text().replace(str(place / "theirs"), str(current)))
    before = await _trust(host, current)
    current.unlink()
    current.symlink_to("next")
    return [before, await _trust(host, current)]


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
