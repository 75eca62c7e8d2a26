"""Kill `holdfast acp` at random moments of a turn, again and again, and count what an editor was told and is gone.

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
CUT = "This turn was interrupted"
A_LIFE = 10
"""How many turns a session goes through before the next one begins."""


@dataclass
class Toll:
    """What the kills cost."""

    cycles: int = 0
    told: int = 0
    lost: int = 0
    untold: int = 0
    interrupted: int = 0
    problems: list[str] = field(default_factory=list[str])


class Door:
    """A process behind the door, spoken to in raw lines."""

    def __init__(self, home: Path, *, early: bool) -> None:
        command = [sys.executable, str(AGENT)]
        with (home / "complaints").open("ab") as complaints:
            self.process = subprocess.Popen(
                [*command, "--early"] if early else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
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

    def ask(self, method: str, params: Any) -> tuple[Any, list[Any]]:
        """The answer, and the updates before it."""
        identity, updates = self.send(method, params), list[Any]()
        while True:
            for message in self.hear(30):
                if message.get("id") == identity:
                    if "error" in message:
                        raise RuntimeError(message["error"])
                    return message["result"], updates
                updates.append(message["params"]["update"])

    def hear(self, seconds: float) -> list[Any]:
        """What comes next, within a time; whole lines only."""
        ready, _, _ = select.select([self.stdout], [], [], seconds)
        if not ready:
            return []
        piece = os.read(self.stdout.fileno(), 65536)
        if not piece:
            raise EOFError("The process ended by itself.")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [json.loads(line) for line in lines]

    def last_words(self) -> list[Any]:
        """All that it said before it was killed."""
        self.process.kill()
        rest, _ = self.process.communicate()
        *lines, _ = (self._rest + rest).split(b"\n")
        return [json.loads(line) for line in lines]


def soak(home: Path, *, cycles: int, early: bool = False, seed: int = 1) -> Toll:
    """Every cycle loads what the one before left, looks at it, prompts again, and is killed in the middle."""
    dice, toll = random.Random(seed), Toll()
    place = {"cwd": str(home.resolve()), "mcpServers": list[Any]()}
    session, heard = "", list[str]()
    while toll.cycles < cycles and not toll.problems and not (early and toll.lost):
        door = Door(home, early=early)
        try:
            door.ask("initialize", {"protocolVersion": 1})
            if toll.cycles % A_LIFE:
                _, replayed = door.ask("session/load", {"sessionId": session, **place})
                heard = _compare(heard, replayed, toll)
            else:
                session, heard = door.ask("session/new", place)[0]["sessionId"], []
            prompt = [{"type": "text", "text": str(toll.cycles)}]
            door.send("session/prompt", {"sessionId": session, "prompt": prompt})
            heard += _chunks(_listen(door, dice.uniform(0, 0.1)))
        finally:
            heard += _chunks(door.last_words())
        toll.cycles += 1
        toll.told = max(toll.told, len(heard))
    if complaints := (home / "complaints").read_text():
        toll.problems.append(complaints)
    return toll


def _listen(door: Door, seconds: float) -> list[Any]:
    """Hear the first word, and what comes in the time after it."""
    said, deadline = list[Any](), time.monotonic() + 30
    while (left := deadline - time.monotonic()) > 0:
        more = door.hear(left)
        if not _chunks(said) and _chunks(more):
            deadline = time.monotonic() + seconds
        said += more
    return said


def _chunks(messages: list[Any]) -> list[str]:
    updates = [message["params"]["update"] for message in messages if "params" in message]
    return [update["content"]["text"] for update in updates if update["sessionUpdate"] == CHUNK]


def _compare(heard: list[str], replayed: list[Any], toll: Toll) -> list[str]:
    """Hold what was told against what is replayed; what is replayed is what there is to lose from now on."""
    texts = [update["content"]["text"] for update in replayed if update["sessionUpdate"] == CHUNK]
    spoken = [update for update in replayed if update["sessionUpdate"] == "user_message_chunk"]
    cut = [text for text in texts if text.startswith(CUT)]
    words = [text for text in texts if not text.startswith(CUT)]
    told = [text for text in heard if not text.startswith(CUT)]
    toll.interrupted = len(cut)
    replays, tellings = set(words), set(told)
    toll.lost += len(tellings - replays)
    toll.untold += max(0, len(words) - len(told))
    if len(replays) != len(words):
        toll.problems.append("something is replayed twice")
    if [text for text in words if text in tellings] != [text for text in told if text in replays]:
        toll.problems.append("something is replayed in another order")
    if words != [f"{turn}:{number}" for turn, number in _counted(words)]:
        toll.problems.append("there are gaps")
    if len(cut) != len(spoken):
        toll.problems.append(f"{len(spoken)} turns were cut off, {len(cut)} are seen as interrupted")
    return texts


def _counted(words: list[str]) -> list[tuple[str, int]]:
    """The same words as they would be without gaps: each turn counts from nought."""
    counted, seen = list[tuple[str, int]](), dict[str, int]()
    for word in words:
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
        toll = soak(Path(folder), cycles=options.cycles, seed=options.seed)
        print(f"seed {options.seed}, through the door: {toll}")
    with tempfile.TemporaryDirectory() as folder:
        control = soak(Path(folder), cycles=options.cycles, early=True, seed=options.seed)
        print(f"control, which tells before it stores: {control}")
    if toll.lost or toll.problems or toll.cycles != options.cycles:
        sys.exit("Something that an editor was told is lost, or a session does not hold together.")
    if not control.lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
