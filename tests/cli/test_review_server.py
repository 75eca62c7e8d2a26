"""The review of a project's servers: which rights they get if the user is not asked. No server is started."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.cli.servers.review_server import (
    ReviewCounts,
    ReviewOptions,
    Rights,
    has_undecided_servers,
    review_servers,
)
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.resolve.grant import ConfinedGrant

YES = ReviewOptions(yes=True)
CONFINED = ReviewOptions(rights=Rights.CONFINED, network=("api.example.org",))
DIRECT = ReviewOptions(rights=Rights.DIRECT)


class Project:
    """A project with one server, and a user who reviews it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.edit_program()
        self.edit_entry()
        environ = {"HOLDFAST_DATA_DIR": folder / "data", "HOLDFAST_SERVERS_USER_FILE": folder / "mcp.json"}
        (folder / "config.toml").touch()
        self._settings = settings.load(
            folder / "config.toml", {name: str(path) for name, path in environ.items()}
        )

    def edit_program(self, text: str = "") -> None:
        (self.folder / "server.py").write_text(f"# {text}\n")

    def edit_entry(self, *args: str) -> None:
        entry = {"command": sys.executable, "args": ["server.py", *args]}
        (self.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"weather": entry}}))

    def review(self, decision: ReviewOptions) -> tuple[ReviewCounts, ConfinedGrant | str]:
        """Review the server. Return the result, and what the server was approved with last."""

        async def work() -> tuple[ReviewCounts, ConfinedGrant | str]:
            async with Host(settings=self._settings) as host:
                options = OpenOptions(cwd=self.folder)
                reviewed = await review_servers(host, options, decision)
                (entry,) = [one for one in (await host.plan(options))[0].entries if one.name == "weather"]
                last = await host.approvals.last_answer(entry)
                return reviewed, "never approved" if last is None else last.grant or "with the user's rights"

        return asyncio.run(work())

    def has_undecided_servers(self) -> bool:
        async def work() -> bool:
            async with Host(settings=self._settings) as host:
                return await has_undecided_servers(host, OpenOptions(cwd=self.folder))

        return asyncio.run(work())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


EDITS: list[Callable[[Project], None]] = [
    lambda project: project.edit_program("edited"),
    lambda project: project.edit_entry("--all"),
]


@pytest.mark.promise("RES-07", "RES-14")
@pytest.mark.parametrize("edit", EDITS, ids=["program", "entry"])
def test_yes_keeps_a_server_confined_with_its_grants_after_an_edit(
    project: Project, tmp_path: Path, edit: Callable[[Project], None]
):
    _, granted = project.review(replace(CONFINED, readable=(str(tmp_path / "data set"),)))
    edit(project)
    reviewed, kept = project.review(YES)

    assert reviewed == ReviewCounts(shown=1)
    assert isinstance(granted, ConfinedGrant)
    assert (granted.network, granted.readable) == (("api.example.org",), (str(tmp_path / "data set"),))
    assert kept == granted


@pytest.mark.promise("RES-07")
def test_yes_alone_does_not_choose_rights_but_keeps_those_that_the_user_chose(project: Project):
    never = project.review(YES)
    project.review(DIRECT)
    project.edit_program("edited")

    assert never == (ReviewCounts(shown=1, undecided=1), "never approved")
    assert project.review(YES) == (ReviewCounts(shown=1), "with the user's rights")


def test_an_approved_server_whose_name_is_taken_needs_no_decision(project: Project, tmp_path: Path):
    at_first = project.has_undecided_servers()
    project.review(DIRECT)
    approved = project.has_undecided_servers()
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"weather": {"command": "other"}}}')
    taken = project.has_undecided_servers()
    project.edit_program("edited")

    assert (at_first, approved, taken) == (True, False, False)
    assert project.has_undecided_servers()


@pytest.mark.promise("BOX-08")
def test_path_that_no_sandbox_mounts_is_not_approved(project: Project, tmp_path: Path):
    above_holdfasts_own_files = replace(CONFINED, readable=(str(tmp_path),))

    assert project.review(above_holdfasts_own_files) == (ReviewCounts(shown=1, undecided=1), "never approved")
