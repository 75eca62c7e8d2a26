"""The task tools. Each call uses one workspace, and sees only that workspace's tasks."""

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from holdfast import __version__
from holdfast.builtin.tasks.store import Status, Task, TaskStore, task_number
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.visible_text import to_line
from holdfast.model.worker_threads import WorkerThreads
from holdfast.toolkit import Annotations, Call, Meta, Toolbox, ToolError, Trust, Workspace
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.workspace import WorkspaceLookup
from holdfast.wire.mcp.server import Service
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

T = TypeVar("T")

_DATABASE_FILE = "tasks.db"
_WORKSPACE_KEYS = ("orbit.workspace",)
"""Keys of `_meta` in which clients that were written for other task servers name their workspace."""
_MAX_CLIENT_NAME = 80
_THREADS = WorkerThreads("tasks", threads=8, per_owner=1)

Title: TypeAlias = Annotated[str, "What to do, in one line.", Meta(min_length=1, max_length=200)]
Body: TypeAlias = Annotated[str, "Further details.", Meta(max_length=20_000)]
TaskId: TypeAlias = Annotated[str, "The task's id, such as blog-3.", Meta(min_length=1, max_length=100)]


def _check_title(title: str) -> None:
    """Raise unless the title is one line of visible text. Invisible characters that are parts of emoji are allowed."""
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in title):
        raise ToolError(
            codes.BAD_ARGUMENT,
            "title: It must be one line, without control characters. Put further lines into `body`.",
        )
    if not to_line(title):
        raise ToolError(codes.BAD_ARGUMENT, "title: It has no visible text. Say what to do.")


def tasks_service(context: SessionContext, data_dir: Path) -> Service:
    """Return the in-process server with the task tools of one session."""
    registry = Registry(data_dir / WORKSPACES_FOLDER)
    return tasks_toolbox(lambda: data_dir, registry).server(EnvironmentAuthenticator(context))


def tasks_toolbox(
    data_dir: Callable[[], Path],
    workspaces: WorkspaceLookup | None = None,
    aliases: ContextAliases = NO_ALIASES,
    *,
    created_by: str = "",
) -> Toolbox:
    """Return the toolbox with the task tools. The first call opens the database, in the folder that `data_dir` returns.

    `created_by` is stored with new tasks in place of the caller, for a command such as `holdfast tasks`.
    """
    store = TaskStore(lambda: data_dir() / _DATABASE_FILE)
    box = Toolbox(
        "tasks",
        version=__version__,
        instructions="A list of tasks for each workspace.",
        workspaces=workspaces,
        aliases=aliases,
    )
    unknown = box.code("UNKNOWN_TASK", http=404, hint="task_list shows the existing tasks.")
    bad_transition = box.code(
        "BAD_TRANSITION", http=409, hint="Take the steps in order: open, started, done."
    )

    def unknown_task(id: str, workspace: Workspace) -> ToolError:
        return ToolError(unknown, f"There is no task {id!r} in {workspace.slug!r}.")

    def read_number(id: str, workspace: Workspace) -> int:
        number = task_number(id, workspace.slug)
        if number is None:
            raise unknown_task(id, workspace)
        return number

    def require_task(task: Task | None, id: str, workspace: Workspace) -> Task:
        if task is None:
            raise unknown_task(id, workspace)
        return task

    def with_status(task: Task, status: Status) -> Task:
        if status not in task.status.next:
            allowed = ", ".join(task.status.next)
            raise ToolError(
                bad_transition,
                f"Task {task.id} is {task.status}; it cannot become {status}.",
                next_actions=[f"Set its status to one of: {allowed}."],
            )
        return replace(task, status=status)

    async def change(id: str, workspace: Workspace, call: Call, apply: Callable[[Task], Task]) -> Task:
        number = read_number(id, workspace)
        return require_task(await _run(call, store.change, workspace.slug, number, apply), id, workspace)

    @box.tool(name="task_add", title="Add a task", annotations=Annotations(destructive=False))
    async def add(title: Title, workspace: Workspace, call: Call, body: Body = "") -> Task:
        """Add a task to the workspace's list."""
        _check_title(title)
        return await _run(call, store.add, workspace.slug, title, body, created_by or _caller(call))

    @box.tool(name="task_list", title="List tasks", operation="query", codes=["UNKNOWN_TASK"])
    async def list_(
        workspace: Workspace,
        call: Call,
        status: Status | None = None,
        first_id: Annotated[str, "The first task to list.", Meta(max_length=100)] = "",
    ) -> dict[str, Any]:
        """List the workspace's tasks, oldest first, optionally of one status.

        A long list is returned in parts: continue at `next_id`.
        """
        first = read_number(first_id, workspace) if first_id else 1
        tasks, next_number = await _run(call, store.list, workspace.slug, status, first)
        return {"items": tasks, **({"next_id": f"{workspace.slug}-{next_number}"} if next_number else {})}

    @box.tool(name="task_show", title="Show a task", operation="query", codes=["UNKNOWN_TASK"])
    async def show(id: TaskId, workspace: Workspace, call: Call) -> Task:
        """Show one task."""
        number = read_number(id, workspace)
        return require_task(await _run(call, store.get, workspace.slug, number), id, workspace)

    @box.tool(name="task_update", title="Change a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def update(
        id: TaskId,
        workspace: Workspace,
        call: Call,
        title: Title | None = None,
        body: Body | None = None,
        status: Status | None = None,
    ) -> Task:
        """Change a task's title, body or status: open, started, done, dropped."""
        if title is not None:
            _check_title(title)

        def apply(task: Task) -> Task:
            # Setting `started` claims the task, so it fails if the task is already started.
            is_same = status == task.status and status is not Status.STARTED
            task = task if status is None or is_same else with_status(task, status)
            return replace(
                task,
                title=task.title if title is None else title,
                body=task.body if body is None else body,
            )

        return await change(id, workspace, call, apply)

    @box.tool(name="task_start", title="Start a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def start(id: TaskId, workspace: Workspace, call: Call) -> Task:
        """Mark a task as started."""
        return await change(id, workspace, call, lambda task: with_status(task, Status.STARTED))

    @box.tool(name="task_done", title="Finish a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def done(id: TaskId, workspace: Workspace, call: Call) -> Task:
        """Mark a started task as done."""
        return await change(id, workspace, call, lambda task: with_status(task, Status.DONE))

    @box.tool(name="workspace_list", title="List workspaces", operation="query")
    async def workspace_list(call: Call) -> list[dict[str, str]]:
        """List the workspaces that this session can use."""
        session = call.session
        shown = [
            workspace
            for workspace in await _run(call, Registry(data_dir() / WORKSPACES_FOLDER).list)
            if session is None
            or session.trust_level is Trust.DIRECT
            or workspace.slug == session.workspace_id
        ]
        return [{"slug": workspace.slug, "name": workspace.name} for workspace in shown]

    return box


async def _run(call: Call, function: Callable[..., T], *args: Any) -> T:
    """Run a function in a thread. The sessions share the threads, and each quota owner uses at most one at a time."""
    return await _THREADS.run(function, *args, owner=call.session.payer if call.session else "")


def _caller(call: Call) -> str:
    """Return the id of the caller's session or, for a client without a session, the name that the client gives itself."""
    if call.session is not None:
        return call.session.session_id
    name = to_line(call.client[: 2 * _MAX_CLIENT_NAME])[:_MAX_CLIENT_NAME]
    return f"client {name}" if name else ""


def main(arguments: list[str] | None = None) -> None:
    """Serve the task tools over stdio or HTTP, as `holdfast builtin tasks`. The tasks are in Holdfast's data folder."""
    from holdfast import settings

    loaded = settings.load()
    keys = (*loaded.aliases.workspace_keys, *_WORKSPACE_KEYS)
    aliases = replace(loaded.aliases, workspace_keys=tuple(dict.fromkeys(keys)))
    tasks_toolbox(lambda: loaded.data_dir, aliases=aliases).main(arguments)


if __name__ == "__main__":
    main()
