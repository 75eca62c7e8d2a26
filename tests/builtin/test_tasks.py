"""The task tools: transitions, persistence, and one list for each workspace."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.tasks.server import tasks_toolbox
from holdfast.builtin.tasks.store import Status, TaskStore
from holdfast.model.trust import Trust
from holdfast.workspaces import Registry
from tests.toolkit.clients import TRANSPORTS_AND_ERAS, Client, Era, connect_client
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


@pytest.fixture(params=TRANSPORTS_AND_ERAS, ids="-".join)
def client(data: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    with connect_client(request.param, SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as connected:
        yield connected


def test_names_of_the_task_tools():
    assert sorted(tasks_toolbox(Path).tools) == [
        "task_add",
        "task_done",
        "task_list",
        "task_show",
        "task_start",
        "task_update",
        "workspace_list",
    ]


def test_task_transitions(client: Client):
    added = client.call("task_add", {"title": "Write", "body": "A page."}, BLOG)
    results = [
        client.call(tool, {"number": 1, **more}, BLOG)
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
    assert [result.get("code") or result["status"] for result in results] == [
        "BAD_TRANSITION",
        "started",
        "BAD_TRANSITION",
        "done",
        "open",
        "dropped",
        "dropped",
    ]
    assert results[0]["next_actions"] == ["Set its status to one of: started, dropped."]
    assert results[-1]["title"] == "Write more"


@pytest.mark.promise("WSP-02")
def test_each_workspace_has_its_own_tasks(client: Client):
    client.call("task_add", {"title": "In the blog"}, BLOG)
    client.call("task_add", {"title": "In the shop", "workspace": "shop"}, BLOG)

    titles = {
        workspace: [task["title"] for task in client.call("task_list", {"workspace": workspace})["items"]]
        for workspace in ("blog", "Shop")
    }
    nowhere = client.call("task_add", {"title": "Nowhere"})
    other = client.call("task_show", {"number": 2, "workspace": "shop"})

    assert titles == {"blog": ["In the blog"], "Shop": ["In the shop"]}
    assert (nowhere["code"], other["code"]) == ("MISSING_WORKSPACE", "UNKNOWN_TASK")


def test_tasks_survive_a_restart_of_their_server(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as before:
        before.call("task_add", {"title": "Remember"}, BLOG)
        before.call("task_start", {"number": 1}, BLOG)
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as after:
        started = after.call("task_list", {"status": "started"}, BLOG)["items"]

    assert [(task["number"], task["title"]) for task in started] == [(1, "Remember")]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.promise("WSP-06")
def test_sandboxed_session_sees_only_its_own_workspace(data: Path, era: Era):
    sandboxed = SessionContext(session_id=ANN.session_id, workspace_id="blog", trust_level=Trust.SANDBOXED)
    with connect_client(
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


def test_concurrent_writers_get_unique_numbers(tmp_path: Path):
    stores = [TaskStore(lambda: tmp_path / "tasks.db") for _ in range(4)]
    for store in stores[:1]:
        store.list("blog", None)

    def add(store: TaskStore) -> None:
        for _ in range(10):
            store.add("blog", "One of many", "", "")

    threads = [threading.Thread(target=add, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [task.number for task in stores[0].list("blog", None)[0]] == list(range(1, 41))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"title": ""}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"title": "t", "body": "x" * 20_001}, "body"),
    ],
)
def test_length_of_title_and_body_is_limited(data: Path, arguments: dict[str, Any], field: str):
    with connect_client(("stdio", "modern"), SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as client:
        failed = client.call("task_add", {**arguments, "workspace": "blog"})

    assert [issue["field"] for issue in failed["details"]["issues"]] == [field]


def test_every_status_has_a_following_status():
    assert all(status.next for status in Status)
