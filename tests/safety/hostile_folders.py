"""Random project folders with everything that a hostile repository can hold."""

import contextlib
import json
import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

KIB = 1024
ENDLESS = (
    "/dev/zero",
    "/dev/urandom",
    "/dev/tty",
    "/proc/self/environ",
    "/proc/kmsg",
    "/sys/kernel/uevent_seqnum",
)
STORMS = (
    b"/*a",
    b"/* ",
    b"//\n",
    b"${a:-",
    b"${",
    b"$",
    b"\\",
    b'"',
    b"[",
    b'{"a":',
    b'{"mcpServers":',
    b",",
    b"\x00",
    b"\xff",
    b"#!",
    b"\xef\xbb\xbf",
    b"9",
    b"\n",
    b"\r",
    b"home = /\n",
    b"gitdir: ",
)
SHEBANGS = (
    "#!/usr/bin/env -S -u /etc/shadow python3",
    "#!/usr/bin/env python3",
    "#!/usr/bin/env -S " + "a " * 2000,
    "#!" + "/" * 60_000,
    "#!{folder}/{program}",
    "#!{folder}/other",
    "#!/root/.ssh",
    "#!/proc/self/exe",
    "#!\x00\xff",
    "#!/bin/sh\nexec sleep 60",
    "",
)
PROJECT_FILES = (
    ".mcp.json",
    ".holdfast",
    ".holdfast/workspace.toml",
    ".holdfast/mcp.json",
    ".holdfast/agents",
    ".holdfast/agents/reviewer.md",
    "AGENTS.md",
    ".tool-versions",
    ".npmrc",
    ".git",
    ".git/commondir",
    ".git/config",
    "package.json",
    "pyvenv.cfg",
    "node_modules/.bin/tool",
    "node_modules/tool/package.json",
    "venv/pyvenv.cfg",
    "venv/bin/python",
    "pyproject.toml",
)
PROGRAM = "program"
_MAX_CONFIG_BYTES = (
    8 * 1024 * KIB
)  # Holdfast reads 64 KiB at most; a thousand long entries would need 24 GB here


def make_folder(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Fill the folder. Return the servers that a client brings to a session in it."""
    rng = random.Random(seed)
    for name in rng.sample(PROJECT_FILES, rng.randrange(1, 6)):
        _put(rng, folder / name, _config if name == ".mcp.json" else _text)
    _put(rng, folder / PROGRAM, _program)
    if not (folder / PROGRAM).is_symlink():
        _chmod(folder / PROGRAM)
    if rng.random() < 0.2:
        _deep(folder, rng.randrange(10, 200))
    if rng.random() < 0.02:
        _wide(folder / rng.choice([".holdfast/agents", "node_modules/.bin", "."]))
    command = rng.choice(_COMMANDS)(folder, rng)
    return [{"name": "program", "command": command[0], "args": command[1:], "env": []}]


_COMMANDS: tuple[Callable[[Path, random.Random], list[str]], ...] = (
    lambda folder, rng: [str(folder / PROGRAM)],
    lambda folder, rng: [str(folder / PROGRAM), "--x", "a" * rng.randrange(5000)],
    lambda folder, rng: [sys.executable, str(folder / PROGRAM)],
    lambda folder, rng: ["node", str(folder / "node_modules/.bin/tool")],
    lambda folder, rng: [str(folder / "venv/bin/python"), "-m", "x"],
    lambda folder, rng: [str(folder / "node_modules/.bin/tool")],
    lambda folder, rng: ["npx", "."],
    lambda folder, rng: ["sh", "-c", f"exec {folder / PROGRAM}"],
)


def _put(rng: random.Random, path: Path, content: Callable[[random.Random, Path], bytes]) -> None:
    """Put something at the path: mostly a file, sometimes what a reader does not expect."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() or path.is_symlink():
            return
        match rng.randrange(12):
            case 0:
                os.mkfifo(path)
            case 1:
                path.symlink_to(rng.choice(ENDLESS))
            case 2:
                path.symlink_to(rng.choice([path.name, "..", "/", "missing", "x" * 255, "a/" * 500]))
            case 3:
                path.mkdir()
            case 4:
                _bind_socket(path)
            case 5:
                with path.open("wb") as file:
                    file.truncate(rng.choice([65 * KIB, 1 << 30, 1 << 40]))
            case 6 if os.geteuid() == 0:
                os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero
            case _:
                path.write_bytes(content(rng, path))
                if rng.random() < 0.05:
                    path.chmod(0)
    except OSError:
        pass  # this file system does not allow it


def _bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _chmod(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.chmod(0o755)


def _deep(folder: Path, depth: int) -> None:
    with contextlib.suppress(OSError):
        (folder / "/".join(["d"] * depth)).mkdir(parents=True)


def _wide(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(2000):
            (folder / f"{number}.md").touch()


def _size(rng: random.Random) -> int:
    return rng.choice([0, 10, 1 * KIB, 60 * KIB, 64 * KIB - 1, 64 * KIB + 1, 300 * KIB, 4096 * KIB])


def _text(rng: random.Random, path: Path) -> bytes:
    if path.name == "package.json" and rng.random() < 0.5:
        entry = rng.choice(["x.js", "../../etc/passwd", "/dev/zero", PROGRAM, "." * 5000])
        return json.dumps({"bin": rng.choice([entry, {"tool": entry}]), "main": entry}).encode()
    if path.name == "pyvenv.cfg" and rng.random() < 0.5:
        return b"home = " + rng.choice([b"/", b"/root", b"/usr/bin", b"..", b"/proc/self/cwd"]) + b"\n"
    if path.suffix == ".md" and rng.random() < 0.5:
        return b"---\ntools: " + _storm(rng) + b"\nmodel: ${SECRET}\n---\n" + _storm(rng)
    if path.name == ".git" and rng.random() < 0.5:
        return b"gitdir: " + rng.choice([b"/", b"../..", b".git", b"/proc/self/cwd", b"x" * 10_000]) + b"\n"
    return _storm(rng)


def _storm(rng: random.Random) -> bytes:
    size = _size(rng)
    storm = b"".join(rng.choice(STORMS) for _ in range(rng.randrange(1, 4)))
    return (storm * (size // len(storm) + 1))[:size]


def _config(rng: random.Random, path: Path) -> bytes:
    storm = _storm(rng).decode("latin-1")
    entry: dict[str, Any] = {
        "command": rng.choice(
            [f"./{PROGRAM}", "npx", "${HOME}", "${SECRET}" * 500, storm[: 2 * KIB], 7, None]
        ),
        "args": cast("list[Any]", [[], ["."], ["${a:-" * 50], [storm], "x", [[[]]]])[rng.randrange(6)],
        "env": rng.choice([{}, {"A": "${SECRET}"}, {storm[:100]: "x"}, {"LD_PRELOAD": "/x"}, []]),
    }
    if rng.random() < 0.3:
        entry = {"url": rng.choice(["http://${SECRET}/", "http://127.0.0.1:9", storm, "file:///etc/passwd"])}
    entry |= rng.choice(
        [{}, {"trust_level": "direct"}, {"readable": ["/"]}, {"network": ["*"]}, {"x": storm}]
    )
    count = min(rng.choice([1, 1, 2, 50, 1000]), 1 + _MAX_CONFIG_BYTES // len(json.dumps(entry)))
    text = json.dumps(
        {"mcpServers": {f"{rng.choice(['s', 'files', 'ﬁles', ''])}{n}": entry for n in range(count)}}
    )
    raw = bytearray(text.encode())
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        at = rng.randrange(len(raw) + 1)
        raw[at:at] = rng.choice(STORMS) * rng.choice([1, 10, 1000])
    return bytes(raw)


def _program(rng: random.Random, path: Path) -> bytes:
    if rng.random() < 0.2:
        return _storm(rng)
    shebang = rng.choice(SHEBANGS).replace("{folder}", str(path.parent)).replace("{program}", PROGRAM)
    return shebang.encode("latin-1", "replace") + b"\n"
