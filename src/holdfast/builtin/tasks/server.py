"""The task tools. Each call uses one workspace, and sees only that workspace's tasks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from holdfast import __version__
from holdfast.builtin.tasks.store import Status, Task, TaskStore
from holdfast.model.worker_threads import WorkerThreads
from holdfast.toolkit import Call, Meta, Toolbox, ToolError, Trust, Workspace
from holdfast.workspaces import WORKSPACES_FOLDER, Registry

T = TypeVar("T")

_DATABASE_FILE = "tasks.db"
_THREADS = WorkerThreads("tasks", threads=8, per_owner=1)

Title: TypeAlias = Annotated[str, "What to do, in one line.", Meta(min_length=1, max_length=200)]
Body: TypeAlias = Annotated[str, "Further details.", Meta(max_length=20_000)]
Number: TypeAlias = Annotated[int, "The task's number.", Meta(ge=1)]


def tasks_toolbox(data_dir: Callable[[], Path]) -> Toolbox:
    """Return the task tools. The first call opens the database, in the folder that `data_dir` returns."""
    store = TaskStore(lambda: data_dir() / _DATABASE_FILE)
    box = Toolbox("tasks", version=__version__, instructions="A list of tasks for each workspace.")
    unknown = box.code("UNKNOWN_TASK", http=404, hint="task_list shows the existing tasks.")
    bad_transition = box.code(
        "BAD_TRANSITION", http=409, hint="Take the steps in order: open, started, done."
    )

    def require_task(task: Task | None, number: int, workspace: Workspace) -> Task:
        if task is None:
            raise ToolError(unknown, f"There is no task {number} in {workspace.slug!r}.")
        return task

    def with_status(task: Task, status: Status) -> Task:
        if status not in task.status.next:
            allowed = ", ".join(task.status.next)
            raise ToolError(
                bad_transition,
                f"Task {task.number} is {task.status}; it cannot become {status}.",
                next_actions=[f"Set its status to one of: {allowed}."],
            )
        return replace(task, status=status)

    def status_change(status: Status) -> Callable[[Task], Task]:
        return lambda task: with_status(task, status)

    @box.tool(name="task_add", title="Add a task")
    async def add(title: Title, workspace: Workspace, call: Call, body: Body = "") -> Task:
        """Add a task to the workspace's list."""
        return await _run(call, store.add, workspace.slug, title, body, _session_id(call))

    @box.tool(name="task_list", title="List tasks", operation="query")
    async def list_(
        workspace: Workspace,
        call: Call,
        status: Status | None = None,
        first_number: Annotated[int, "The first task to list.", Meta(ge=1)] = 1,
    ) -> dict[str, Any]:
        """List the workspace's tasks, oldest first, optionally of one status.

        A long list is returned in parts: continue at `next_number`.
        """
        tasks, next_number = await _run(call, store.list, workspace.slug, status, first_number)
        return {"items": tasks, **({"next_number": next_number} if next_number else {})}

    @box.tool(name="task_show", title="Show a task", operation="query", codes=["UNKNOWN_TASK"])
    async def show(number: Number, workspace: Workspace, call: Call) -> Task:
        """Show one task."""
        return require_task(await _run(call, store.get, workspace.slug, number), number, workspace)

    @box.tool(name="task_update", title="Change a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def update(
        number: Number,
        workspace: Workspace,
        call: Call,
        title: Title | None = None,
        body: Body | None = None,
        status: Status | None = None,
    ) -> Task:
        """Change a task's title, body or status: open, started, done, dropped."""

        def change(task: Task) -> Task:
            task = task if status in (None, task.status) else with_status(task, status)
            return replace(
                task,
                title=task.title if title is None else title,
                body=task.body if body is None else body,
            )

        changed = await _run(call, store.change, workspace.slug, number, change)
        return require_task(changed, number, workspace)

    @box.tool(name="task_start", title="Start a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def start(number: Number, workspace: Workspace, call: Call) -> Task:
        """Mark a task as started."""
        changed = await _run(call, store.change, workspace.slug, number, status_change(Status.STARTED))
        return require_task(changed, number, workspace)

    @box.tool(name="task_done", title="Finish a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    async def done(number: Number, workspace: Workspace, call: Call) -> Task:
        """Mark a started task as done."""
        changed = await _run(call, store.change, workspace.slug, number, status_change(Status.DONE))
        return require_task(changed, number, workspace)

    @box.tool(name="workspace_list", title="List workspaces", operation="query")
    async def workspaces(call: Call) -> list[dict[str, str]]:
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
    """Run a function in a thread. Sessions share this server, so each session gets one thread at a time."""
    return await _THREADS.run(function, *args, owner=_session_id(call))


def _session_id(call: Call) -> str:
    return call.session.session_id if call.session else ""


def main(arguments: list[str] | None = None) -> None:
    """Serve the tasks in Holdfast's own data folder."""
    tasks_toolbox(_data_dir).main(arguments)


def _data_dir() -> Path:
    from holdfast import settings

    return settings.load().data_dir


if __name__ == "__main__":
    main()
