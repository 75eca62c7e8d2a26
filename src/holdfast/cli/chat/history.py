"""The lines of earlier chats, for the arrow keys: few, without secrets, and readable by their owner alone."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.mask import Mask
from holdfast.model.typed import typed

FILE = "chat_history"
_MOST = 1000
_LONGEST = 4000


def recall(file: Path) -> list[str]:
    """The lines that were kept, the oldest first."""
    if not _is_ours(file):
        return []
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").splitlines()[-_MOST:]
    return []


def remember(file: Path, lines: Sequence[str], mask: Mask) -> None:
    """Keep these lines after those that are there; where something else than a file is, nothing is kept."""
    if not lines or not _is_ours(file):
        return
    kept = [typed(line, mask) for line in (*recall(file), *lines) if len(line) <= _LONGEST][-_MOST:]
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):  # a chat does not fail for want of its history
        try:
            _write(new, kept)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def _write(new: Path, lines: Sequence[str]) -> None:
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as written:
        written.writelines(f"{line}\n" for line in lines)


def _is_ours(file: Path) -> bool:
    """Whoever wants no history puts a link to /dev/null here, as for a shell's."""
    return not file.is_symlink() and (file.is_file() or not file.exists())
