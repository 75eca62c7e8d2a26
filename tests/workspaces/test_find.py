import os
import subprocess
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.workspaces import Registry
from holdfast.workspaces.worktree import find_repository


@pytest.mark.promise("WSP-06")
def test_workspace_is_found_by_slug_name_and_any_path_inside(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    added = registry.add(project)
    (project / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(project / "deep")

    addresses = [
        *("my-project", "My Project", "  my-project \n"),
        *(str(project), f"{project}/", str(project / "deep" / "er"), str(project / "not" / "yet" / "there")),
        *(str(tmp_path / "link"), str(tmp_path / "link" / "er"), f"{tmp_path}/./My Project//deep"),
    ]
    assert [registry.find(address) for address in addresses] == [added] * len(addresses)


@pytest.mark.promise("WSP-06")
def test_unknown_addresses_find_nothing(registry: Registry, project: Path, tmp_path: Path) -> None:
    registry.add(project)
    (tmp_path / "My Projects").mkdir()
    (project / "out").symlink_to(tmp_path / "My Projects")

    for address in (
        "",
        "  ",
        "other",
        "my project",
        "MY-PROJECT",
        "/",
        str(tmp_path),
        f"{project}s",
        f"{project}/out",
    ):
        assert registry.find(address) is None


@pytest.mark.promise("WSP-06")
@pytest.mark.parametrize(
    "address",
    [
        "..",
        ".",
        "../x",
        "a/b",
        "a\\b",
        "./my-project",
        "~/x",
        "file:///etc",
        "/a/../b",
        "/..",
        "a\0b",
        "/a\0b",
        "/" + "x" * 4096,
    ],
)
def test_invalid_address_is_an_error(registry: Registry, address: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        registry.find(address)

    assert caught.value.code == codes.BAD_WORKSPACE


def test_innermost_of_nested_workspaces_is_found(registry: Registry, project: Path) -> None:
    (project / "inner").mkdir()
    outer, inner = registry.add(project), registry.add(project / "inner")

    assert registry.find(str(project / "inner" / "x")) == inner
    assert registry.find(str(project / "other")) == outer


def test_ambiguous_name_is_an_error_that_lists_the_slugs(registry: Registry, tmp_path: Path) -> None:
    for parent in "ab":
        (tmp_path / parent / "Blog").mkdir(parents=True)
        registry.add(tmp_path / parent / "Blog")

    with pytest.raises(HoldfastError, match=r"'Blog' matches several workspaces: blog, blog-2\."):
        registry.find("Blog")


def test_slug_takes_precedence_over_a_name(registry: Registry, project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = registry.add(project, "blog")
    registry.add(tmp_path / "other", "Other")
    file = registry.file_of("other")
    file.write_text(file.read_text().replace('"Other"', '"blog"'))

    assert registry.find("blog") == first


def test_folder_claimed_by_two_files_is_an_error(registry: Registry, project: Path) -> None:
    registry.add(project)
    twin = registry.file_of("twin")
    twin.write_text(f"path = '{project}'\ntrust = 'direct'")

    with pytest.raises(HoldfastError, match="matches several workspaces: my-project, twin"):
        registry.find(str(project))


@pytest.mark.parametrize("broken", ["trust = 'nonsense'", "[", "tools = 1"])
def test_finding_an_invalid_workspace_is_an_error(
    registry: Registry, project: Path, tmp_path: Path, broken: str
) -> None:
    registry.add(project)
    registry.file_of("my-project").write_text(f"path = '{project}'\n{broken}")

    for address in ("my-project", str(project), str(project / "deep")):
        with pytest.raises(HoldfastError) as caught:
            registry.find(address)
        assert caught.value.code == codes.BAD_WORKSPACE_FILE
    assert registry.find(str(tmp_path / "elsewhere")) is None


@pytest.mark.promise("CTX-12")
@pytest.mark.parametrize("form", ["nested", "flat"])
def test_path_announced_by_an_alias_finds_its_workspace(registry: Registry, project: Path, form: str) -> None:
    added = registry.add(project)
    aliases = ContextAliases(workspace_keys=("orbit.workspace",))
    path = f" {project} "
    meta: dict[str, object] = (
        {"orbit": {"workspace": path}} if form == "nested" else {"orbit.workspace": path}
    )

    assert registry.find(aliases.workspace_in(meta)) == added


class TestWorktree:
    @pytest.fixture
    def repository(self, tmp_path: Path) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        _git(folder, "init", "--quiet")
        _git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
        return folder

    @pytest.fixture
    def worktree(self, repository: Path, tmp_path: Path) -> Path:
        _git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
        (tmp_path / "tree" / "deep").mkdir()
        return tmp_path / "tree"

    @pytest.mark.promise("WSP-06")
    def test_worktree_finds_its_repository(
        self, registry: Registry, repository: Path, worktree: Path
    ) -> None:
        added = registry.add(repository)

        assert [registry.find(str(path)) for path in (worktree, worktree / "deep")] == [added] * 2

    def test_registered_worktree_finds_itself(
        self, registry: Registry, repository: Path, worktree: Path
    ) -> None:
        registry.add(repository)
        own = registry.add(worktree)

        assert registry.find(str(worktree / "deep")) == own

    def test_repository_takes_precedence_over_an_enclosing_workspace(
        self, registry: Registry, repository: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "around").mkdir()
        registry.add(tmp_path / "around")
        added = registry.add(repository)
        _git(repository, "worktree", "add", "--quiet", str(tmp_path / "around" / "tree"))

        assert registry.find(str(tmp_path / "around" / "tree")) == added

    def test_one_of_an_unregistered_repository_is_not_found(self, registry: Registry, worktree: Path) -> None:
        assert registry.find(str(worktree)) is None

    def test_a_path_in_an_unregistered_repository_is_not_found(
        self, registry: Registry, repository: Path
    ) -> None:
        (repository / "deep").mkdir()

        assert [
            registry.find(str(path)) for path in (repository, repository / "deep", repository / ".git")
        ] == [None] * 3

    def test_worktree_of_a_bare_repository_finds_it(
        self, registry: Registry, repository: Path, tmp_path: Path
    ) -> None:
        _git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
        _git(tmp_path / "bare.git", "worktree", "add", "--quiet", str(tmp_path / "tree"))
        added = registry.add(tmp_path / "bare.git", "bare")

        assert registry.find(str(tmp_path / "tree")) == added

    def test_relative_gitdir_is_resolved(self, registry: Registry, repository: Path, worktree: Path) -> None:
        added = registry.add(repository)
        entry = repository / ".git" / "worktrees" / "tree"
        (worktree / ".git").write_text(f"gitdir: {os.path.relpath(entry, worktree)}\n")
        (entry / "gitdir").write_text(f"{os.path.relpath(worktree / '.git', entry)}\n")

        assert registry.find(str(worktree)) == added

    def test_submodule_is_not_a_worktree(self, repository: Path) -> None:
        inside = repository / "sub"
        inside.mkdir()
        modules = repository / ".git" / "modules" / "sub"
        modules.mkdir(parents=True)
        (inside / ".git").write_text("gitdir: ../.git/modules/sub\n")

        assert find_repository(inside) is None

    @pytest.mark.promise("WSP-06")
    def test_forged_worktree_finds_nothing(
        self, registry: Registry, repository: Path, worktree: Path, tmp_path: Path
    ) -> None:
        """A forged worktree would get the trust of the repository."""
        registry.add(repository, trust=Trust.DIRECT)
        evil = tmp_path / "evil"
        evil.mkdir()
        real = (worktree / ".git").read_text()
        fake = evil / "fake" / "worktrees" / "x"
        fake.mkdir(parents=True)
        (fake / "gitdir").write_text(f"{evil / '.git'}\n")
        (fake / "commondir").write_text(f"{repository / '.git'}\n")
        (evil / "linked").symlink_to(repository / ".git" / "worktrees" / "tree")

        for claim in (
            real,
            f"gitdir: {repository / '.git'}\n",
            f"gitdir: {fake}\n",
            f"gitdir: {evil / 'linked'}\n",
            f"gitdir: {evil / 'missing'}\n",
            "gitdir: \n",
            "gitdir: \0\n",
            "nonsense",
            "gitdir: " + "x" * 5000,
        ):
            (evil / ".git").write_text(claim)
            assert (claim, registry.find(str(evil))) == (claim, None)

    def test_control_forged_worktree_is_accepted_without_the_back_reference(
        self, worktree: Path, tmp_path: Path
    ) -> None:
        """A reader that checks only `.git` and `commondir`."""
        evil = tmp_path / "evil"
        evil.mkdir()
        (evil / ".git").write_text((worktree / ".git").read_text())

        entry = Path((evil / ".git").read_text().removeprefix("gitdir: ").strip())

        assert (
            entry / (entry / "commondir").read_text().strip()
        ).resolve() == tmp_path / "repository" / ".git"

    @pytest.mark.parametrize("kind", ["a link", "a pipe", "a loop"])
    def test_git_file_that_is_not_a_regular_file_is_ignored(
        self, registry: Registry, repository: Path, worktree: Path, kind: str
    ) -> None:
        registry.add(repository)
        own = worktree / ".git"
        moved = own.rename(worktree / "moved")
        match kind:
            case "a link":
                own.symlink_to(moved)
            case "a pipe":
                os.mkfifo(own)
            case _:
                own.symlink_to(own)

        assert registry.find(str(worktree)) is None


def _git(folder: Path, *arguments: str) -> None:
    config = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ = {**clean, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *config, *arguments], cwd=folder, env=environ, check=True)
