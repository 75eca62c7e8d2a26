"""A server for tests that counts its starts in a file of its container. `-` if it cannot write there."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.light_server import LightServer, Request

try:
    with Path("/srv/starts").open("a+", encoding="ascii") as file:
        file.write("x")
        starts = str(file.tell())
except OSError:
    starts = "-"


class CountingServer(LightServer):
    """Has one tool: how often the server was started in this container."""

    def answer(self, request: Request) -> dict[str, Any]:
        if request.method == "tools/list":
            return {"tools": [{"name": "count", "description": "Count.", "inputSchema": {"type": "object"}}]}
        return {"content": [{"type": "text", "text": starts}]}


if __name__ == "__main__":
    CountingServer().run()
