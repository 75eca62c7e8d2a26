"""The task tools. Each tool works in one workspace and sees only its tasks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from holdfast import __version__
from holdfast.builtin.tasks.store import Status, Task, TaskStore
from holdfast.toolkit import Call, Meta, Toolbox, ToolError, Trust, Workspace
from holdfast.workspaces import Registry

FILE = "tasks.db"

Title: TypeAlias = Annotated[str, "What to do, in one line.", Meta(min_length=1, max_length=200)]
Body: TypeAlias = Annotated[str, "Further details.", Meta(max_length=20_000)]
Number: TypeAlias = Annotated[int, "The task's number.", Meta(ge=1)]


def tasks_toolbox(data_dir: Callable[[], Path]) -> Toolbox:
    """The task tools, with their database in a folder that is opened with the first call."""
    store = TaskStore(lambda: data_dir() / FILE)
    box = Toolbox("tasks", version=__version__, instructions="A list of tasks for each workspace.")
    unknown = box.code("UNKNOWN_TASK", http=404, hint="task_list shows the existing tasks.")
    bad_transition = box.code(
        "BAD_TRANSITION", http=409, hint="Take the steps in order: open, started, done."
    )

    def require_task(task: Task | None, number: int, workspace: Workspace) -> Task:
        if task is None:
            raise ToolError(unknown, f"There is no task {number} in {workspace.slug!r}.")
        return task

    def move(task: Task, status: Status) -> Task:
        if status not in task.status.next:
            following = ", ".join(task.status.next)
            raise ToolError(
                bad_transition,
                f"Task {task.number} is {task.status}; it cannot become {status}.",
                next_actions=[f"Set its status to one of: {following}."],
            )
        return replace(task, status=status)

    @box.tool(name="task.add", title="Add a task")
    def add(title: Title, workspace: Workspace, call: Call, body: Body = "") -> Task:
        """Add a task to the workspace's list."""
        return store.add(workspace.slug, title, body, call.session.session_id if call.session else "")

    @box.tool(name="task.list", title="List tasks", operation="query")
    def list_(workspace: Workspace, status: Status | None = None) -> list[Task]:
        """List the workspace's tasks, oldest first, optionally of one status."""
        return store.list(workspace.slug, status)

    @box.tool(name="task.show", title="Show a task", operation="query", codes=["UNKNOWN_TASK"])
    def show(number: Number, workspace: Workspace) -> Task:
        """Show one task."""
        return require_task(store.get(workspace.slug, number), number, workspace)

    @box.tool(name="task.update", title="Change a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def update(
        number: Number,
        workspace: Workspace,
        title: Title | None = None,
        body: Body | None = None,
        status: Status | None = None,
    ) -> Task:
        """Change a task's title, body or status: open, started, done, dropped."""

        def change(task: Task) -> Task:
            task = task if status in (None, task.status) else move(task, status)
            return replace(
                task,
                title=task.title if title is None else title,
                body=task.body if body is None else body,
            )

        return require_task(store.change(workspace.slug, number, change), number, workspace)

    @box.tool(name="task.start", title="Start a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def start(number: Number, workspace: Workspace) -> Task:
        """Mark a task as started."""
        changed = store.change(workspace.slug, number, lambda task: move(task, Status.STARTED))
        return require_task(changed, number, workspace)

    @box.tool(name="task.done", title="Finish a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def done(number: Number, workspace: Workspace) -> Task:
        """Mark a started task as done."""
        changed = store.change(workspace.slug, number, lambda task: move(task, Status.DONE))
        return require_task(changed, number, workspace)

    @box.tool(name="workspace.list", title="List workspaces", operation="query")
    def workspaces(call: Call) -> list[dict[str, str]]:
        """List the workspaces that this session can use."""
        session = call.session
        shown = [
            workspace
            for workspace in Registry(data_dir() / "workspaces").list()
            if session is None
            or session.trust_level is Trust.DIRECT
            or workspace.slug == session.workspace_id
        ]
        return [{"slug": workspace.slug, "name": workspace.name} for workspace in shown]

    return box


def main(arguments: list[str] | None = None) -> None:
    """Serve the tasks in Holdfast's own data folder."""
    tasks_toolbox(_data_dir).main(arguments)


def _data_dir() -> Path:
    from holdfast import settings

    return settings.load().data_dir


if __name__ == "__main__":
    main()
