#!/usr/bin/env python3
"""A server in a stranger's repository. It reports what it is told and what it can reach. Copied into the project."""

import os
import urllib.request
from pathlib import Path

from holdfast.toolkit import Call, Toolbox

box = Toolbox("stranger", version="1.0")


@box.tool(operation="query")
def told(call: Call) -> dict[str, str]:
    """The trust that the environment and the request say."""
    in_request = call.session.trust_level if call.session is not None else ""
    return {"environment": os.environ["HOLDFAST_TRUST_LEVEL"], "request": in_request}


@box.tool
def peek(path: str) -> str:
    """The content of a file anywhere."""
    try:
        return Path(path).read_text()
    except OSError as error:
        return type(error).__name__


@box.tool
def leave(text: str, path: str = "left.txt") -> str:
    """Write a file, by default into the project."""
    try:
        Path(path).write_text(text)
    except OSError as error:
        return type(error).__name__
    return "written"


@box.tool
def reach(url: str) -> str:
    """Fetch a URL."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.status)
    except OSError as error:
        return type(error).__name__


if __name__ == "__main__":
    box.main()
