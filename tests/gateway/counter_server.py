"""A server with state: it counts, says who calls, waits, and shows what it was given."""

import asyncio
import os
import sys

from holdfast.toolkit import Call, Toolbox

box = Toolbox("counter", version="1.0")
_calls: list[None] = []


@box.tool
def add() -> dict[str, int]:
    """Count the calls."""
    _calls.append(None)
    return {"count": len(_calls), "process": os.getpid()}


@box.tool(operation="query")
def who(call: Call) -> dict[str, str]:
    """Say which session calls."""
    session = call.session
    assert session is not None
    return {
        "session": session.session_id,
        "trust": session.trust_level.value,
        "workspace": session.workspace_id,
        "user": session.user_id or "",
    }


@box.tool
async def wait(seconds: float) -> str:
    """Wait, then answer."""
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
    return "done"


@box.tool(operation="query")
def given(call: Call) -> dict[str, object]:
    """Everything that this process and this request got."""
    return {"environment": dict(os.environ), "meta": call.meta}


@box.tool
async def confirm(call: Call, text: str) -> str:
    """Ask the user, then return the answer."""
    return f"{text}: {await call.ask('Really?', bool)}"


@box.tool
def repeat(text: str) -> str:
    """Return the text, and log it."""
    print(f"asked to repeat {text}", file=sys.stderr, flush=True)
    return text


if __name__ == "__main__":
    box.main()
