"""The tools over the tasks: each takes the workspace, and sees its tasks only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from holdfast import __version__
from holdfast.builtin.tasks.book import Book
from holdfast.builtin.tasks.task import Status, Task
from holdfast.toolkit import Call, Meta, Toolbox, ToolError, Trust, Workspace
from holdfast.workspaces import Registry

FILE = "tasks.db"

Title: TypeAlias = Annotated[str, "A line that says what to do.", Meta(min_length=1, max_length=200)]
Body: TypeAlias = Annotated[str, "Whatever else there is to say.", Meta(max_length=20_000)]
Number: TypeAlias = Annotated[int, "The task's number.", Meta(ge=1)]


def tasks(data_dir: Callable[[], Path]) -> Toolbox:
    """The toolbox over the tasks in a folder, which is not looked at before the first call."""
    book = Book(lambda: data_dir() / FILE)
    box = Toolbox("tasks", version=__version__, instructions="A list of tasks for each workspace.")
    unknown = box.code("UNKNOWN_TASK", http=404, hint="task_list shows the tasks there are.")
    not_from_here = box.code("BAD_TRANSITION", http=409, hint="Take the steps in order: open, started, done.")

    def found(task: Task | None, number: int, workspace: Workspace) -> Task:
        if task is None:
            raise ToolError(unknown, f"There is no task {number} in {workspace.slug!r}.")
        return task

    def moved(task: Task, status: Status) -> Task:
        if status not in task.status.next:
            ways = ", ".join(task.status.next)
            raise ToolError(
                not_from_here,
                f"Task {task.number} is {task.status}; it cannot become {status}.",
                next_actions=[f"From {task.status} it can become: {ways}."],
            )
        return replace(task, status=status)

    @box.tool(name="task.add", title="Add a task")
    def add(title: Title, workspace: Workspace, call: Call, body: Body = "") -> Task:
        """Add a task to the workspace's list."""
        return book.add(workspace.slug, title, body, call.session.session_id if call.session else "")

    @box.tool(name="task.list", title="List tasks", operation="query")
    def list_(workspace: Workspace, status: Status | None = None) -> list[Task]:
        """List the workspace's tasks, oldest first; all of them, or those of one status."""
        return book.list(workspace.slug, status)

    @box.tool(name="task.show", title="Show a task", operation="query", codes=["UNKNOWN_TASK"])
    def show(number: Number, workspace: Workspace) -> Task:
        """Show one task."""
        return found(book.get(workspace.slug, number), number, workspace)

    @box.tool(name="task.update", title="Change a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def update(
        number: Number,
        workspace: Workspace,
        title: Title | None = None,
        body: Body | None = None,
        status: Status | None = None,
    ) -> Task:
        """Change a task's words, or its status: open, started, done, dropped."""

        def change(task: Task) -> Task:
            task = task if status in (None, task.status) else moved(task, status)
            return replace(
                task,
                title=task.title if title is None else title,
                body=task.body if body is None else body,
            )

        return found(book.change(workspace.slug, number, change), number, workspace)

    @box.tool(name="task.start", title="Start a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def start(number: Number, workspace: Workspace) -> Task:
        """Say that somebody works on a task now."""
        changed = book.change(workspace.slug, number, lambda task: moved(task, Status.STARTED))
        return found(changed, number, workspace)

    @box.tool(name="task.done", title="Finish a task", codes=["UNKNOWN_TASK", "BAD_TRANSITION"])
    def done(number: Number, workspace: Workspace) -> Task:
        """Say that a task which was started is done."""
        changed = book.change(workspace.slug, number, lambda task: moved(task, Status.DONE))
        return found(changed, number, workspace)

    @box.tool(name="workspace.list", title="List workspaces", operation="query")
    def workspaces(call: Call) -> list[dict[str, str]]:
        """List the workspaces that this session can work in."""
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
    tasks(_data_dir).main(arguments)


def _data_dir() -> Path:
    from holdfast import settings

    return settings.load().data_dir


if __name__ == "__main__":
    main()
