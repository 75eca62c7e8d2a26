"""A server for tests that tells how it was started, and for whom."""

import os
import sys
from pathlib import Path

from holdfast.toolkit import Toolbox

box = Toolbox("options", version="1.0")
total = 0


@box.tool(operation="query")
def describe() -> dict[str, str]:
    """How the server was started, and for whom."""
    started = {name: os.environ.get(f"HOLDFAST_{name.upper()}", "") for name in ("user_id", "trust_level")}
    return {"cwd": str(Path.cwd()), "path": os.environ.get("PATH", ""), **started}


@box.tool()
def add(number: int = 1) -> int:
    """Add to the total that this process keeps."""
    global total
    total += number
    return total


@box.tool()
def repeat(text: str) -> str:
    """Return the text, and log it."""
    print(text, file=sys.stderr, flush=True)
    return text


if __name__ == "__main__":
    box.main()
