"""An echo server on our toolkit."""

from holdfast.toolkit import Toolbox

box = Toolbox("echo", version="1")


@box.tool(operation="query")
async def echo(text: str) -> str:
    """Echo."""
    return text


if __name__ == "__main__":
    box.main()
