"""The task tools: transitions, persistence, and one list for each workspace."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.tasks.server import tasks_toolbox
from holdfast.builtin.tasks.store import Status, TaskStore
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.workspaces import Registry
from tests.commands import run_holdfast
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
        client.call(tool, {"id": "1", **more}, BLOG)
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
    other = client.call("task_show", {"id": "blog-1", "workspace": "shop"})

    assert titles == {"blog": ["In the blog"], "Shop": ["In the shop"]}
    assert (nowhere["code"], other["code"]) == ("MISSING_WORKSPACE", "UNKNOWN_TASK")


@pytest.mark.promise("CTX-12", "WSP-01")
@pytest.mark.parametrize("form", ["nested", "flat"])
def test_path_under_the_key_of_orbit_selects_the_workspace_without_settings(
    client: Client, data: Path, form: str
):
    path = str(data.parent / "Blog")
    meta = {"orbit": {"workspace": path}} if form == "nested" else {"orbit.workspace": path}

    added = client.call("task_add", {"title": "Announced"}, meta)

    assert added["id"] == "blog-1"


@pytest.mark.promise("CTX-12")
def test_built_in_tasks_take_the_aliases_of_the_settings(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_ALIASES_WORKSPACE_KEYS": "other.place"}
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as client:
        added = [
            client.call("task_add", {"title": "t"}, {key: {inner: "shop"}})["id"]
            for key, inner in (("other", "place"), ("orbit", "workspace"))
        ]

    assert added == ["shop-1", "shop-2"]


def test_ids_of_tasks_are_unique_in_the_store(data: Path):
    with connect_client(("stdio", "modern"), SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as client:
        added = [
            client.call("task_add", {"title": "t", "workspace": name})["id"] for name in ("blog", "shop")
        ]
        other = client.call("task_show", {"id": "shop-1", "workspace": "blog"})

    assert (added, other["code"]) == (["blog-1", "shop-1"], "UNKNOWN_TASK")


@pytest.fixture
def repositories(data: Path) -> Path:
    """A folder in which clients may register workspaces."""
    folder = data.parent / "repositories"
    for name in ("one", "two/inner", ".hidden", "日本語"):
        (folder / name).mkdir(parents=True)
    return folder


def test_announced_folder_is_registered_where_the_operator_allows_it(data: Path, repositories: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_WORKSPACES_AUTO_REGISTER": str(repositories)}
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as client:

        def add(path: str) -> Any:
            answer = client.call("task_add", {"title": "t"}, {"orbit": {"workspace": path}})
            return answer.get("id") or answer["code"]

        meta = {"orbit": {"workspace": str(repositories / "one")}}
        elsewhere = client.call("task_add", {"title": "t", "workspace": "blog"}, meta)["id"]
        registered_by_it = Registry(data / "workspaces").find(str(repositories / "one"))
        added = [
            add(str(repositories / name))
            for name in ("one", "one", "two/inner", "日本語", "two", ".hidden", "no")
        ]
        outside = [
            add(path) for path in ("/usr", str(data), str(repositories), str(repositories / ".." / "one"))
        ]
        hidden = client.call("task_list", {"workspace": str(repositories / ".hidden")})
    registered = Registry(data / "workspaces")

    assert (elsewhere, registered_by_it) == ("blog-1", None), "the argument names another workspace"
    assert "It was not registered automatically: it is hidden" in hidden["error"]
    assert (
        hidden["hint"]
        == "Register the folder, or one above it, but not one that contains Holdfast's data, such as a home folder: "
        f"holdfast workspaces add {repositories / '.hidden'}"
    )
    assert added == ["one-1", "one-2", "inner-1", "workspace-1", "BAD_WORKSPACE", *["UNKNOWN_WORKSPACE"] * 2]
    assert outside == [*["UNKNOWN_WORKSPACE"] * 3, "BAD_WORKSPACE"]
    assert registered.get("one").trust is Trust.SANDBOXED


def test_announced_folder_in_a_repository_registers_the_repository(data: Path, repositories: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_WORKSPACES_AUTO_REGISTER": str(repositories)}
    (repositories / "one" / "src").mkdir()
    (repositories / "one" / ".git" / "worktrees" / "tree").mkdir(parents=True)
    tree, entry = repositories / "tree", repositories / "one" / ".git" / "worktrees" / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {entry}\n")
    (entry / "commondir").write_text("../..\n")
    (entry / "gitdir").write_text(f"{tree}/.git\n")
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as client:
        added = [
            client.call("task_add", {"title": "t"}, {"orbit": {"workspace": str(path)}})["id"]
            for path in (tree, repositories / "one" / "src", repositories / "one")
        ]

    assert added == ["one-1", "one-2", "one-3"]


@pytest.mark.parametrize("allowed", [False, True])
def test_folder_that_names_a_workspace_is_not_registered_before_the_user_has_answered(
    data: Path, repositories: Path, allowed: bool
):
    theme = repositories / "one"
    (theme / ".holdfast").mkdir()
    (theme / ".holdfast" / "workspace.toml").write_text('workspace = "blog"')
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    if allowed:
        environ["HOLDFAST_WORKSPACES_AUTO_REGISTER"] = str(repositories)
    registry = Registry(data / "workspaces")
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as client:

        def add() -> dict[str, Any]:
            return client.call("task_add", {"title": "t"}, {"orbit": {"workspace": str(theme)}})

        refused = add()
        registry.decline_binding(str(theme), "blog")
        declined = add()
        if not allowed:
            registry.bind(str(theme), "blog")
        added = add()

    assert (refused["code"], refused["hint"]) == (
        "UNKNOWN_WORKSPACE",
        f"To accept this: holdfast workspaces bind {theme}",
    )
    assert (declined.get("id") or declined["code"]) == ("one-1" if allowed else "UNKNOWN_WORKSPACE")
    assert added["id"] == ("one-2" if allowed else "blog-1")
    if allowed:
        with pytest.raises(HoldfastError, match="already registered as 'one'"):
            registry.bind(str(theme), "blog")


def test_announced_folder_is_not_registered_by_default(data: Path, repositories: Path):
    with connect_client(("stdio", "modern"), SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as client:
        refused = client.call("task_add", {"title": "t"}, {"orbit": {"workspace": str(repositories / "one")}})

    assert refused["code"] == "UNKNOWN_WORKSPACE"


def test_number_of_registered_folders_is_limited(data: Path, repositories: Path):
    registry = Registry(data / "workspaces")

    registry.add_below(repositories / "one", [repositories], at_most=1)

    with pytest.raises(HoldfastError, match="There are 1 workspaces below"):
        registry.add_below(repositories / "two", [repositories], at_most=1)


@pytest.mark.slow
def test_commands_use_the_same_tasks_as_the_tools(data: Path):
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(data), "HOLDFAST_CONFIG": ""}
    blog = data.parent / "Blog"

    def run(*words: str, cwd: Path = blog) -> tuple[int, str]:
        done = run_holdfast("tasks", *words, cwd=cwd, env=environ)
        return done.returncode, done.stdout + done.stderr

    with connect_client(("stdio", "modern"), SERVER, environ={"HOLDFAST_DATA_DIR": str(data)}) as client:
        client.call("task_add", {"title": "By a tool"}, BLOG)
        added = run("add", "By a person")
        early = run("done", "blog-2")
        started = run("start", "2")
        done = run("done", "blog-2", cwd=data.parent)
        listed = run("list", "--json", "--workspace", "blog", cwd=data.parent)
        shown_alone = run("show", "blog-2", "--json")
        updated = run("update", "blog-1", "--title", "Changed")
        shown = client.call("task_show", {"id": "blog-2"}, BLOG)
    (other := data.parent / "other").mkdir()
    nowhere, project = run("list", cwd=data.parent), run("list", cwd=other)
    number_alone, unknown = run("show", "2", cwd=other), run("show", "blog-99", cwd=other)

    assert (added, started, done) == (
        (0, "Added blog-2: By a person\n"),
        (0, "Started blog-2: By a person\n"),
        (0, "Finished blog-2: By a person\n"),
    )
    assert early == (
        1,
        "Error: Task blog-2 is open; it cannot become done.\nHint: Set its status to one of: started, dropped.\n",
    )
    assert [json.loads(line)["status"] for line in listed[1].splitlines()] == ["open", "done"]
    assert json.loads(shown_alone[1]) == json.loads(listed[1].splitlines()[1]), "without the tool's envelope"
    assert (updated[1], shown["status"]) == ("Changed blog-1: Changed\n", "done")
    assert "does not belong to a workspace" in nowhere[1]
    assert number_alone[1].endswith(
        "Hint: Give the whole id, such as blog-3, or run the command in the folder of the task's workspace.\n"
    )
    assert unknown[1].endswith("Hint: To list the tasks: holdfast tasks list --workspace blog\n")
    # A folder that contains Holdfast's data folder cannot be registered.
    assert (
        "run the command in the folder of a workspace." in nowhere[1],
        "holdfast workspaces add ." in project[1],
    ) == (
        True,
        True,
    )


def test_tasks_survive_a_restart_of_their_server(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as before:
        added = before.call("task_add", {"title": "Remember"}, BLOG)
        before.call("task_start", {"id": "blog-1"}, BLOG)
    with connect_client(("stdio", "modern"), SERVER, environ=environ) as after:
        started = after.call("task_list", {"status": "started"}, BLOG)["items"]

    assert [(task["number"], task["title"]) for task in started] == [(1, "Remember")]
    assert added["created_by"] == "client tests", "a client without a session has only the name that it sends"


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


@pytest.mark.anyio
@pytest.mark.parametrize("title", ["   ", "two\nlines", "a\0b", "\x1b[31mred", "\u200b"])
async def test_a_title_is_one_line_of_visible_text(data: Path, title: str):
    box = tasks_toolbox(lambda: data, Registry(data / "workspaces"))
    async with box.client() as client:
        added = await client.call("task_add", {"title": "Plant 👩\u200d🌾 seeds", "workspace": "blog"})
        refused = await client.call("task_add", {"title": title, "workspace": "blog"})
        changed = await client.call("task_update", {"id": "1", "title": title, "workspace": "blog"})

    assert (added.ok, refused.code, changed.code) == (True, "BAD_ARGUMENT", "BAD_ARGUMENT")


@pytest.mark.anyio
async def test_only_one_agent_can_take_a_task_and_nothing_changes_without_a_change(data: Path):
    box = tasks_toolbox(lambda: data, Registry(data / "workspaces"))
    async with box.client() as client:

        async def update(**given: str) -> Any:
            return await client.call("task_update", {"id": "1", "workspace": "blog", **given})

        added = await client.call("task_add", {"title": "t", "workspace": "blog"})
        first, second = await update(status="started"), await update(status="started")
        unchanged, wrong = await update(title="t"), await update(status="closed")

    assert (added.ok, first.ok, second.code) == (True, True, "BAD_TRANSITION")
    assert unchanged.data["updated_at"] == first.data["updated_at"]
    assert "open, started, done, dropped" in wrong.envelope["details"]["issues"][0]["message"]


@pytest.mark.slow
def test_commands_say_what_is_wrong_and_what_to_do(data: Path):
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(data), "HOLDFAST_CONFIG": ""}
    blog, other = data.parent / "Blog", data.parent / "other"
    (other / ".holdfast").mkdir(parents=True)
    announcement = other / ".holdfast" / "workspace.toml"

    def run(*words: str, cwd: Path = blog) -> str:
        done = run_holdfast(*words, cwd=cwd, env=environ)
        return done.stdout + done.stderr

    run("tasks", "add", "One")
    listed = run("tasks", "list", "--status", "open")
    dropped = run("tasks", "update", "BLOG-1", "--status", "dropped")
    empty = run("tasks", "add", "")
    unknown = run("tasks", "show", "APP-1")
    announcement.write_text('workspace = "blog"')
    unbound = run("tasks", "list", cwd=other)
    announcement.write_text("workspace = blog")
    broken = [run("tasks", "list", cwd=other), run("workspaces", "bind", cwd=other)]
    file = data / "workspaces" / "blog.toml"
    file.write_text(file.read_text().replace("sandboxed", "none"))
    bad_file = run("tasks", "list", "--workspace", "blog", cwd=other)

    assert ("One" in listed, dropped) == (True, "Changed blog-1: One\n")
    assert empty.startswith("Error: title: ")
    assert unknown == (
        "Error: There is no task 'app-1': there is no workspace 'app'.\nHint: `holdfast workspaces list` shows all workspaces.\n"
    )
    assert f"Hint: To accept this: holdfast workspaces bind {other}" in unbound
    assert all("it is not valid TOML" in text for text in broken)
    assert bad_file.startswith("Error: "), "there is no log line"


def test_a_folder_does_not_get_the_tasks_of_a_removed_workspace_with_the_same_name(data: Path):
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(data), "HOLDFAST_CONFIG": ""}
    first, second = data.parent / "Blog", data.parent / "elsewhere" / "Blog"
    second.mkdir(parents=True)

    def run(*words: str, cwd: Path = first) -> str:
        return run_holdfast(*words, cwd=cwd, env=environ).stdout

    run("tasks", "add", "Of the first")
    run("workspaces", "remove", "blog", "--yes")
    removed = run_holdfast("tasks", "show", "blog-1", cwd=second, env=environ).stderr
    added = run("workspaces", "add", ".", cwd=second)
    others = run("tasks", "list", cwd=second)
    Registry(data / "workspaces").file_of("blog-2").unlink()
    run("workspaces", "add", ".", "--name", "Diary")

    assert removed == (
        "Error: The workspace 'blog' was removed. Its tasks reappear when you register its folder again.\n"
        f"Hint: To register it: holdfast workspaces add {first}\n"
    )
    assert (added.partition(":")[0], others.partition(".")[0]) == ("Added 'blog-2'", "There are no tasks yet")
    assert "Of the first" in run("tasks", "list"), "the same folder has its tasks again"


def test_every_status_has_a_following_status():
    assert all(status.next for status in Status)
