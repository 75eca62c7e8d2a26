"""The toolkit server for tests with third-party clients."""

import asyncio
import subprocess
import sys

from holdfast.model import codes
from holdfast.toolkit import Call, Toolbox, ToolError

box = Toolbox("toolkit-server", version="1.2.3", instructions="Echo and count.")
counted: list[int] = []
given_up: list[int] = []


@box.tool(operation="query")
async def cancelled() -> int:
    """The number of cancelled `wait` calls."""
    for _ in range(200):  # the client may call this before its cancellation has arrived
        if given_up:
            break
        await asyncio.sleep(0.01)
    return len(given_up)


@box.tool()
async def count() -> int:
    """The number of calls in this process."""
    counted.append(1)
    return len(counted)


@box.tool(operation="query")
async def echo(text: str) -> str:
    """Echo."""
    return text


@box.tool(codes=["DENIED"])
async def fail() -> None:
    """Fail."""
    raise ToolError(codes.DENIED, "as asked")


@box.tool(operation="query")
def shout() -> str:
    """Print, and let a child print."""
    print("a print() in a handler")
    sys.stdout.flush()
    subprocess.run(["echo", "a child of a handler"], check=True)
    return "shouted"


@box.tool(operation="query")
async def wait(call: Call) -> None:
    """Report progress, then wait to be cancelled."""
    await call.progress(1, 2)
    try:
        await asyncio.Event().wait()
    finally:
        given_up.append(1)


if __name__ == "__main__":
    box.main()
