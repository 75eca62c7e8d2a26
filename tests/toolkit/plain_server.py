"""A server with the envelope in `_meta`."""

from holdfast.toolkit import Toolbox, ToolError

box = Toolbox("plain", envelope="meta")


@box.tool(operation="query")
def divide(a: float, b: float) -> float:
    """Divide."""
    if not b:
        raise ToolError("No division by zero.")
    return a / b


if __name__ == "__main__":
    box.main()
