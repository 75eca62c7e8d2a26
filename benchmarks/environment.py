"""A separate virtual environment for a peer that conflicts with our dependencies, created on first use."""

import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build" / "peers"


def python_of(peer: str) -> str:
    """The Python of an environment with the packages of locks/<peer>.txt only."""
    folder = ENVIRONMENTS / peer
    python = str(folder / "bin" / "python")
    lock = ROOT / "locks" / f"{peer}.txt"
    digest = hashlib.sha256(
        b"\0".join([lock.read_bytes(), str(folder).encode(), platform.python_version().encode()])
    ).hexdigest()
    stamp = folder / "setup.stamp"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"bench: Installing {peer} for comparison ...", file=sys.stderr, flush=True)
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        with (ENVIRONMENTS / f"{peer}.log").open("wb") as log:
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], log)
            _run([*pip, "--require-hashes", "--no-deps", "-r", str(lock)], log)
        stamp.write_text(digest)
    return python


def _run(command: list[str], log: IO[bytes]) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        log_path = Path(log.name).relative_to(ROOT)
        sys.exit(f"bench: {' '.join(command[1:4])} failed (exit code {done.returncode}); see {log_path}.")
