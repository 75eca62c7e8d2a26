"""The MCP server of `holdfast up --demo`: it counts, says who calls it, and reads files."""

import os
from pathlib import Path

from holdfast.toolkit import Call, Toolbox, ToolError

box = Toolbox("demo", version="1.0")
_calls: list[None] = []


@box.tool(operation="query")
def who_calls(call: Call) -> dict[str, str]:
    """Say which session calls, according to the host."""
    session = call.session
    if session is None:
        return {"session": "unknown", "trust": "unknown"}
    return {"session": session.session_id, "trust": session.trust_level.value}


@box.tool
def count() -> dict[str, int]:
    """Count the calls. The count is in this process's memory."""
    _calls.append(None)
    return {"count": len(_calls), "process": os.getpid()}


@box.tool(operation="query")
def read(path: str) -> str:
    """Read a file."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {(error.strerror or 'error').lower()}.") from None


if __name__ == "__main__":
    box.main()
