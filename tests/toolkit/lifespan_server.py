"""A server that writes to a file when its lifespan and its values begin and end."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Annotated

from holdfast.toolkit import Call, Given, Toolbox

MODE = os.environ.get("LIFESPAN_MODE", "")


def note(what: str) -> None:
    with open(os.environ["LIFESPAN_MARKS"], "a") as file:  # noqa: PTH123
        file.write(f"{what}\n")


print("printed at the import")


async def lifespan(box: Toolbox) -> AsyncIterator[str]:
    note("begin")
    print("printed at the start")
    if MODE == "fail":
        raise RuntimeError("the database is down")
    if MODE == "hang at the start":
        await asyncio.Event().wait()
    try:
        yield "the state"
    finally:
        await asyncio.sleep(0)  # it can still await
        note("end")


async def get_value() -> AsyncIterator[str]:
    note("open")
    yield "value"
    note("close")


box = Toolbox("lifespan", lifespan=lifespan)


@box.tool()
async def state(call: Call, value: Annotated[str, Given(get_value, per="process")]) -> str:
    """The state."""
    note("call")
    return f"{call.state} {value}"


@box.tool()
async def hang(call: Call, value: Annotated[str, Given(get_value, per="process")]) -> None:
    """Hang until the server ends."""
    try:
        note("hanging")
        await asyncio.Event().wait()
    finally:
        note("cancelled")


@box.tool()
def leave() -> None:
    """Try to end the process."""
    sys.exit(3)


if __name__ == "__main__":
    box.main()
