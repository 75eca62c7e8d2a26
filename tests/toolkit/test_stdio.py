"""Standard output carries only the protocol, even when handlers print."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.toolkit.clients import MODERN_META
from tests.toolkit.server_process import ROOT

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("shout", {}),
    ("crash", {}),
    ("leave", {}),
    ("too_long_in_a_thread", {}),
    ("progress", {}),
    ("add_note", {"title": 1}),
    ("picture", {}),
    ("nope", {}),
    ("shout", {}),
]


@pytest.mark.promise("KIT-13")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_every_line_of_standard_output_is_a_frame(era: str):
    meta: dict[str, Any] = {**(MODERN_META if era == "modern" else {}), "progressToken": "p"}
    lines: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": _params(tool, arguments, meta)}
        for number, (tool, arguments) in enumerate(CALLS)
    ]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    if era == "handshake":
        lines.insert(0, {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello})
    standard_input = "".join(json.dumps(line) + "\n" for line in lines) + "this is not a frame\n"

    done = subprocess.run(
        [sys.executable, "-m", "tests.toolkit.notes_server"],
        cwd=ROOT,
        input=standard_input,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(frame["jsonrpc"] == "2.0" for frame in frames)
    answered = {frame["id"] for frame in frames if "id" in frame}
    assert answered == {*(line["id"] for line in lines), None}
    for stray in (
        "a stray print",
        "a stray write",
        "a stray child",
        "a stray fork",
        "secret-in-the-exception",
    ):
        assert stray in done.stderr
        assert stray not in done.stdout


def _params(tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments, "_meta": meta}
