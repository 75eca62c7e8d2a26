"""The first-party list of tasks: steps in order, kept for good, one list for each workspace."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.tasks.book import Book
from holdfast.builtin.tasks.server import tasks
from holdfast.builtin.tasks.task import Status
from holdfast.model.trust import Trust
from holdfast.workspaces import Registry
from tests.toolkit.clients import WAYS, Client, Era, client
from tests.toolkit.contexts import ANN, META_KEY, SessionContext, context_env

SERVER = "holdfast.builtin.tasks.server"
BLOG = {META_KEY: {"workspace_id": "blog"}}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with two workspaces, `blog` and `shop`."""
    registry = Registry(tmp_path / "data" / "workspaces")
    for name in ("Blog", "Shop"):
        (tmp_path / name).mkdir()
        registry.add(tmp_path / name, name)
    return tmp_path / "data"


@pytest.fixture(params=WAYS, ids="-".join)
def stranger(data: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    with client(request.param, SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as connected:
        yield connected


def test_the_dots_of_its_names_are_shown_as_underscores():
    assert sorted(tasks(Path).tools) == [
        "task_add",
        "task_done",
        "task_list",
        "task_show",
        "task_start",
        "task_update",
        "workspace_list",
    ]


def test_a_task_goes_its_way_step_by_step(stranger: Client):
    added = stranger.call("task_add", {"title": "Write", "body": "A page."}, BLOG)
    steps = [
        stranger.call(tool, {"number": 1, **more}, BLOG)
        for tool, more in [
            ("task_done", {}),
            ("task_start", {}),
            ("task_start", {}),
            ("task_done", {}),
            ("task_update", {"status": "open", "title": "Write more"}),
            ("task_update", {"status": "dropped"}),
            ("task_show", {}),
        ]
    ]

    assert (added["number"], added["title"], added["body"], added["status"]) == (
        1,
        "Write",
        "A page.",
        "open",
    )
    assert [step.get("code") or step["status"] for step in steps] == [
        "BAD_TRANSITION",
        "started",
        "BAD_TRANSITION",
        "done",
        "open",
        "dropped",
        "dropped",
    ]
    assert steps[0]["next_actions"] == ["From open it can become: started, dropped."]
    assert steps[-1]["title"] == "Write more"


@pytest.mark.promise("WSP-02")
def test_each_workspace_has_its_own_list(stranger: Client):
    stranger.call("task_add", {"title": "In the blog"}, BLOG)
    stranger.call("task_add", {"title": "In the shop", "workspace": "shop"}, BLOG)

    titles = {
        workspace: [task["title"] for task in stranger.call("task_list", {"workspace": workspace})["items"]]
        for workspace in ("blog", "Shop")
    }
    nowhere = stranger.call("task_add", {"title": "Nowhere"})
    other = stranger.call("task_show", {"number": 2, "workspace": "shop"})

    assert titles == {"blog": ["In the blog"], "Shop": ["In the shop"]}
    assert (nowhere["code"], other["code"]) == ("MISSING_WORKSPACE", "UNKNOWN_TASK")


def test_tasks_outlive_their_server(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    with client(("stdio", "modern"), SERVER, environ=environ) as before:
        before.call("task_add", {"title": "Remember"}, BLOG)
        before.call("task_start", {"number": 1}, BLOG)
    with client(("stdio", "modern"), SERVER, environ=environ) as after:
        kept = after.call("task_list", {"status": "started"}, BLOG)["items"]

    assert [(task["number"], task["title"]) for task in kept] == [(1, "Remember")]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.promise("WSP-06")
def test_a_sandboxed_session_sees_its_own_workspace_and_no_other(data: Path, era: Era):
    sandboxed = SessionContext(session_id=ANN.session_id, workspace_id="blog", trust_level=Trust.SANDBOXED)
    with client(
        ("stdio", era), SERVER, environ={**context_env(sandboxed), "HOLDFAST_DATA_DIR": str(data)}
    ) as mine:
        added = mine.call("task_add", {"title": "Mine"})
        other = mine.call("task_add", {"title": "Theirs", "workspace": "shop"})
        seen = mine.call("workspace_list")["items"]

    assert (added["created_by"], other["code"], seen) == (
        ANN.session_id,
        "WORKSPACE_DENIED",
        [{"slug": "blog", "name": "Blog"}],
    )


def test_writers_at_once_get_a_number_each_and_one_of_two_steps_wins(tmp_path: Path):
    books = [Book(lambda: tmp_path / "tasks.db") for _ in range(4)]
    for book in books[:1]:
        book.list("blog", None)

    def add(book: Book) -> None:
        for _ in range(10):
            book.add("blog", "One of many", "", "")

    threads = [threading.Thread(target=add, args=(book,)) for book in books]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [task.number for task in books[0].list("blog", None)] == list(range(1, 41))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"title": ""}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"title": "t", "body": "x" * 20_001}, "body"),
    ],
)
def test_a_title_and_a_body_have_their_bounds(data: Path, arguments: dict[str, Any], field: str):
    with client(("stdio", "modern"), SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as stranger:
        failed = stranger.call("task_add", {**arguments, "workspace": "blog"})

    assert [issue["field"] for issue in failed["details"]["issues"]] == [field]


def test_every_status_can_be_left():
    assert all(status.next for status in Status)
