"""A server with handlers that hang, async and in a thread, and a driven session."""

import asyncio
import threading
import time

from holdfast.toolkit import DrivenSessions, Toolbox

box = Toolbox("hanging")
hanging = threading.Semaphore(0)


def dispose(mark: str) -> None:
    with open(mark, "a") as file:  # noqa: PTH123
        file.write("disposed\n")


driven: DrivenSessions[str] = box.dispose_at_end(DrivenSessions(dispose))


@box.tool()
async def launch(mark: str) -> None:
    """Start a driven session."""
    driven.add("one", mark)


@box.tool()
async def hang() -> None:
    """Hang on the event loop."""
    hanging.release()
    await asyncio.Event().wait()


@box.tool()
def hang_in_a_thread() -> None:
    """Hang in a thread, which cannot be cancelled."""
    hanging.release()
    time.sleep(3600)


@box.tool(operation="query")
def are_hanging() -> None:
    """Wait until both handlers hang."""
    for _ in range(2):
        hanging.acquire()


if __name__ == "__main__":
    box.main()
