"""Kill `holdfast acp` at random moments of a turn, many times, and count the published events that are lost.

`python -m tests.journeys.soak --cycles 100`
"""

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.journeys.editor import environment

AGENT = Path(__file__).with_name("soak_agent.py")
CHUNK = "agent_message_chunk"
INTERRUPTED = "This turn was interrupted"
TURNS_PER_SESSION = 10


@dataclass
class SoakResult:
    """What the kills cost: `lost` events were published and are not stored, `unpublished` ones the reverse."""

    cycles: int = 0
    published: int = 0
    lost: int = 0
    unpublished: int = 0
    interrupted: int = 0
    problems: list[str] = field(default_factory=list[str])


class AgentProcess:
    """A `holdfast acp` process, spoken to in raw lines."""

    def __init__(self, home: Path, *, publish_first: bool) -> None:
        command = [sys.executable, str(AGENT)]
        with (home / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--publish-first"] if publish_first else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(home, {"HOLDFAST_LOG_LEVEL": "error"}),
            )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        self._rest = b""
        self._next = 0

    def send(self, method: str, params: Any) -> int:
        assert self.process.stdin is not None
        self._next += 1
        line = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return self._next

    def request(self, method: str, params: Any) -> tuple[Any, list[Any]]:
        """Send a request; return the result and the updates before it."""
        identity, updates = self.send(method, params), list[Any]()
        while True:
            for message in self.receive(30):
                if message.get("id") == identity:
                    if "error" in message:
                        raise RuntimeError(message["error"])
                    return message["result"], updates
                updates.append(message["params"]["update"])

    def receive(self, seconds: float) -> list[Any]:
        """The next whole lines, within a time."""
        ready, _, _ = select.select([self.stdout], [], [], seconds)
        if not ready:
            return []
        piece = os.read(self.stdout.fileno(), 65536)
        if not piece:
            raise EOFError("The process ended unexpectedly.")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> list[Any]:
        """Kill the process and return what it had sent."""
        self.process.kill()
        rest, _ = self.process.communicate()
        *lines, _ = (self._rest + rest).split(b"\n")
        return [json.loads(line) for line in lines]


def soak(home: Path, *, cycles: int, publish_first: bool = False, seed: int = 1) -> SoakResult:
    """In every cycle a new process loads the session, compares the replay, is prompted, and is killed during the turn."""
    dice, result = random.Random(seed), SoakResult()
    params = {"cwd": str(home.resolve()), "mcpServers": list[Any]()}
    session, received = "", list[str]()
    while result.cycles < cycles and not result.problems and not (publish_first and result.lost):
        agent = AgentProcess(home, publish_first=publish_first)
        try:
            agent.request("initialize", {"protocolVersion": 1})
            if result.cycles % TURNS_PER_SESSION:
                _, replayed = agent.request("session/load", {"sessionId": session, **params})
                received = _compare(received, replayed, result)
            else:
                session, received = agent.request("session/new", params)[0]["sessionId"], []
            prompt = [{"type": "text", "text": str(result.cycles)}]
            agent.send("session/prompt", {"sessionId": session, "prompt": prompt})
            received += _chunks(_receive_for(agent, dice.uniform(0, 0.1)))
        finally:
            received += _chunks(agent.kill())
        result.cycles += 1
        result.published = max(result.published, len(received))
    if errors := (home / "errors").read_text():
        result.problems.append(errors)
    return result


def _receive_for(agent: AgentProcess, seconds: float) -> list[Any]:
    """Wait for the first chunk, then receive for the given time."""
    messages, deadline = list[Any](), time.monotonic() + 30
    while (left := deadline - time.monotonic()) > 0:
        more = agent.receive(left)
        if not _chunks(messages) and _chunks(more):
            deadline = time.monotonic() + seconds
        messages += more
    return messages


def _chunks(messages: list[Any]) -> list[str]:
    updates = [message["params"]["update"] for message in messages if "params" in message]
    return [update["content"]["text"].rstrip() for update in updates if update["sessionUpdate"] == CHUNK]


def _compare(received: list[str], replayed: list[Any], result: SoakResult) -> list[str]:
    """Compare the received chunks with the replay; the replay is what later cycles are compared with."""
    texts = [update["content"]["text"].rstrip() for update in replayed if update["sessionUpdate"] == CHUNK]
    prompts = [update for update in replayed if update["sessionUpdate"] == "user_message_chunk"]
    notices = [text for text in texts if text.startswith(INTERRUPTED)]
    chunks = [text for text in texts if not text.startswith(INTERRUPTED)]
    sent = [text for text in received if not text.startswith(INTERRUPTED)]
    result.interrupted = len(notices)
    replayed_set, sent_set = set(chunks), set(sent)
    result.lost += len(sent_set - replayed_set)
    result.unpublished += max(0, len(chunks) - len(sent))
    if len(replayed_set) != len(chunks):
        result.problems.append("a chunk is replayed twice")
    if [text for text in chunks if text in sent_set] != [text for text in sent if text in replayed_set]:
        result.problems.append("chunks are replayed in another order")
    if chunks != [f"{turn}:{number}" for turn, number in _counted(chunks)]:
        result.problems.append("there are gaps")
    if len(notices) != len(prompts):
        result.problems.append(
            f"{len(prompts)} turns were interrupted, {len(notices)} are shown as interrupted"
        )
    return texts


def _counted(chunks: list[str]) -> list[tuple[str, int]]:
    """The chunks as they would be without gaps: each turn counts from 0."""
    counted, seen = list[tuple[str, int]](), dict[str, int]()
    for word in chunks:
        turn = word.partition(":")[0]
        counted.append((turn, seen.setdefault(turn, 0)))
        seen[turn] += 1
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = soak(Path(folder), cycles=options.cycles, seed=options.seed)
        print(f"seed {options.seed}: {result}")
    with tempfile.TemporaryDirectory() as folder:
        control = soak(Path(folder), cycles=options.cycles, publish_first=True, seed=options.seed)
        print(f"control, which publishes before it stores: {control}")
    if result.lost or result.problems or result.cycles != options.cycles:
        sys.exit("A published event is lost, or a session is inconsistent.")
    if not control.lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
