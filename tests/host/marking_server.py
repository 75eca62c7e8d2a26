"""A server for tests whose tool creates a file in its working directory: the trace of a call that was made."""

from pathlib import Path

from holdfast.toolkit import Toolbox

box = Toolbox("marks", version="1.0")


@box.tool()
def mark(name: str) -> str:
    """Create a file of this name."""
    Path(name).touch()
    return name


if __name__ == "__main__":
    box.main()
