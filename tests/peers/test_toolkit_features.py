"""Third-party clients use the resources, prompts, completion, questions and subscriptions of a toolkit server.

Each client runs over one transport in one era; with HOLDFAST_SLOW=1 (`make peers`) over both in each era.
"""

import json
import os
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest

from tests.peers.spawn import node, python
from tests.toolkit.server_process import run_http_server

CLIENTS = {
    "python-sdk": [*python("python_features.py"), "sdk"],
    "fastmcp": [*python("python_features.py"), "fastmcp"],
    "typescript-sdk-2": ["typescript_features.mjs"],
}
PAIRS = {
    *[("python-sdk", "http", "handshake")],
    *[("typescript-sdk-2", "stdio", "handshake"), ("typescript-sdk-2", "http", "modern")],
}
MATRIX = [
    pytest.param(name, transport, era, id=f"{name}-{transport}-{era}")
    for name in CLIENTS
    for transport in ("stdio", "http")
    for era in ("handshake", "modern")
    if os.environ.get("HOLDFAST_SLOW") == "1" or (name, transport, era) in PAIRS
]


@pytest.mark.promise("KIT-23", "KIT-24")
@pytest.mark.parametrize(("name", "transport", "era"), MATRIX)
def test_client_uses_every_feature(name: str, transport: str, era: str):
    with ExitStack() as ends:
        server = (
            [ends.enter_context(run_http_server("tests.peers.features_server"))]
            if transport == "http"
            else python("features_server.py")
        )
        command = CLIENTS[name]
        client = node(command[0]) if command[0].endswith(".mjs") else command
        done = subprocess.run([*client, era, *server], capture_output=True, timeout=40, check=False)

    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == expected(name, era)


def expected(name: str, era: str) -> dict[str, Any]:
    return {
        "resources": ["shop://menu"],
        "templates": ["shop://orders/{id}"],
        "prompts": [["greet", [["name", True]]]],
        "read": ["application/json", '{"id":7}'],
        # The TypeScript SDK turns -32002 into -32602.
        "unknown": -32602 if era == "modern" or name == "typescript-sdk-2" else -32002,
        "prompt": [["user", "text"], ["user", "image"], ["assistant", "text"]],
        "completion": ["Bob"],
        "order": "2 soup: Nice! ['file:///blog']",
        "declined": "DECLINED",
        "asked": ["What would you like?", "Praise the soup.", "Decline this."],
        **({"told": ["prompts/list_changed", "resources/updated"]} if name != "fastmcp" else {}),
    }
