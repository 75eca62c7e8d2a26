"""What `holdfast acp` loads before it answers an editor's first request."""

import json
import os
import subprocess
import sys
from pathlib import Path

REQUEST: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}
LOADED_LATER = (
    "host",
    "session",
    "connect",
    "resolve",
    "sandbox",
    "agent",
    "builtin",
    "store.sqlite",
    "model.event",
)


def test_the_first_answer_does_not_load_what_sessions_need(tmp_path: Path) -> None:
    """A request before `initialize` is refused, and does not start loading the rest."""
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "holdfast", "acp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    ) as agent:
        assert agent.stdin
        assert agent.stdout
        assert agent.stderr
        print(json.dumps(REQUEST), file=agent.stdin, flush=True)
        answer = json.loads(agent.stdout.readline())
        agent.kill()
        loaded = {line.rpartition("|")[2].strip() for line in agent.stderr}

    assert "initialize" in answer["error"]["message"]
    assert "holdfast.acp.serve" in loaded
    heavy = {f"holdfast.{name}" for name in LOADED_LATER} | {
        "pydantic",
        "rich",
        "aiohttp",
        "sqlite3",
    }
    assert {
        name for name in loaded if name in heavy or name.startswith(tuple(f"{one}." for one in heavy))
    } == set()
