"""A server with a tool for each promise about the toolkit."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from holdfast.model import codes
from holdfast.toolkit import (
    Call,
    ContextAliases,
    DrivenSessions,
    Image,
    Meta,
    Reply,
    ResourceLink,
    Toolbox,
    ToolError,
    Workspace,
    current_session,
    direct_only,
)

box = Toolbox(
    "notes",
    version="1.0",
    instructions="Take notes.",
    aliases=ContextAliases(workspace_keys=("orbit.workspace",)),
)
NOTE_EXISTS = box.code("NOTE_EXISTS", http=409, hint="Choose another title.")


@dataclass(frozen=True)
class Note:
    title: str
    words: int


class Driven:
    """A driven session. It writes a line to a file when it is disposed of."""

    def __init__(self, mark: str) -> None:
        self.mark = mark


def dispose(thing: Driven) -> None:
    if thing.mark:
        with open(thing.mark, "a") as file:  # noqa: PTH123
            file.write("disposed\n")


browsers: DrivenSessions[Driven] = box.dispose_at_end(DrivenSessions(dispose))


@box.tool(operation="query")
async def who(call: Call) -> dict[str, Any]:
    """Return the caller's identity."""
    ambient = current_session()
    seen = call.session
    assert ambient == seen
    return {
        "session": seen and seen.session_id,
        "workspace": seen and seen.workspace_id,
        "trust": seen and seen.trust_level,
        "user": seen and seen.user_id,
        "parent": seen and seen.parent_session_id,
        "announced": call.announced_workspace,
    }


@box.tool(codes=["NOTE_EXISTS"])
async def add_note(
    title: Annotated[str, "What it is called.", Meta(min_length=1, max_length=80)],
    body: str = "",
    kind: Literal["plain", "list"] = "plain",
) -> Note:
    """Add a note."""
    if title == "taken":
        raise ToolError(
            NOTE_EXISTS,
            "There is a note 'taken' already.",
            next_actions=["Choose another title."],
            title=title,
        )
    return Note(title, len(body.split()))


@box.tool(operation="query")
async def look_alikes(session_id: str = "", trust: str = "", user_id: str = "") -> dict[str, Any]:
    """Take arguments that are named like fields of the context."""
    seen = current_session()
    return {
        "session": seen and seen.session_id,
        "trust": seen and seen.trust_level,
        "user": seen and seen.user_id,
    }


@box.tool(operation="query")
async def where(workspace: Workspace) -> dict[str, str]:
    """Return the workspace of this call."""
    return {"slug": workspace.slug, "path": workspace.path}


@box.tool(guards=[direct_only])
async def powerful() -> str:
    """Only for direct sessions."""
    return "done"


@box.tool(operation="query")
async def override() -> dict[str, Any]:
    """Try to override the reserved members."""
    return {"ok": False, "_meta": {"session_id": "forged"}, "data": 1}


@box.tool()
async def crash() -> None:
    """Fail unexpectedly."""
    raise RuntimeError("secret-in-the-exception")


@box.tool()
async def leave() -> None:
    """Try to end the process."""
    sys.exit(3)


@box.tool(operation="logs")
def shout() -> str:
    """Print, log, and let a child print, all on standard output."""
    print("a stray print")
    sys.stdout.flush()
    os.write(1, b"a stray write\n")
    subprocess.run(["echo", "a stray child"], check=True)
    if os.fork() == 0:
        print("a stray fork", flush=True)
        os._exit(0)
    os.wait()
    return "shouted"


@box.tool(operation="eval", requires_eval_flag=True)
async def evaluate(code: str) -> str:
    """Pretend to evaluate code."""
    if code == "crash":
        raise SyntaxError(code)
    return str(len(code))


@box.tool(operation="query", deadline=0.2)
async def too_long() -> None:
    """Exceed the deadline."""
    await asyncio.Event().wait()


@box.tool(operation="query", deadline=0.2)
def too_long_in_a_thread() -> None:
    """Exceed the deadline in a thread."""
    time.sleep(1)


@box.tool(operation="query")
async def progress(call: Call) -> str:
    """Report progress, and log."""
    await call.progress(1, 2, "half")
    await call.log("warning", "careful", why="because")
    await call.progress(2, 2)
    return "done"


@box.tool(operation="screenshot")
async def picture() -> Reply:
    """Return an image and a link besides data."""
    return Reply([Image(b"png"), ResourceLink(uri="note://1", name="one")], {"size": 3})


@box.tool(codes=["BAD_ARGUMENT"])
async def launch(session_id: str, mark: str = "") -> dict[str, str]:
    """Start a driven session."""
    browsers.add(session_id, Driven(mark))
    return {"launched": session_id}


@box.tool(operation="query", codes=["NOT_RUNNING"])
async def drive(session_id: str = "", fail: bool = False) -> dict[str, list[str]]:
    """Use a driven session."""
    browsers.get(session_id)
    if fail:
        raise ToolError(codes.NOT_RUNNING, "It stopped.")
    return {"running": list(browsers.ids())}


@box.tool(codes=["NOT_RUNNING"])
async def stop(session_id: str) -> dict[str, bool]:
    """Stop a driven session."""
    return {"stopped": await browsers.remove(session_id)}


if __name__ == "__main__":
    box.main()
