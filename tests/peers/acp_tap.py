"""A proxy between an editor and an agent that records every line and its sender.

`acp_tap.py FOLDER COMMAND…` starts the agent; each start writes its own file in the folder.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def main(folder: Path, command: list[str]) -> int:
    lock = threading.Lock()
    with (folder / f"{os.getpid()}.jsonl").open("w", encoding="utf-8") as recording:

        def forward(by: str, source: IO[bytes], target: IO[bytes]) -> None:
            for line in source:
                with lock:  # recorded first, so that a response comes after its request
                    print(json.dumps({"by": by, "line": line.decode()}), file=recording, flush=True)
                try:
                    target.write(line)
                    target.flush()
                except BrokenPipeError:
                    break
            if by == "client":
                target.close()

        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert agent.stdin is not None
        assert agent.stdout is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: agent.send_signal(number))
        client = threading.Thread(target=forward, args=("client", sys.stdin.buffer, agent.stdin), daemon=True)
        client.start()
        forward("agent", agent.stdout, sys.stdout.buffer)
        return agent.wait()


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1]), sys.argv[2:]))  # does not wait for the thread that reads input
