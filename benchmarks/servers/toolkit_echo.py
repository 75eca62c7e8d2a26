"""An echo server on our toolkit; with a number, that many tools more."""

import sys

from holdfast.toolkit import Toolbox

box = Toolbox("echo", version="1")


@box.tool(operation="query")
async def echo(text: str) -> str:
    """Echo."""
    return text


async def other(text: str, number: int = 0, flag: bool = False) -> str:  # noqa: FBT001, FBT002
    """One of many."""
    return text


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        for number in range(int(sys.argv.pop(1))):
            box.tool(operation="query", name=f"tool_{number}")(other)
    box.main()
