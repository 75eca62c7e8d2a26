"""The prompts that the arrow keys recall: at most a thousand, with secrets masked, in a file that only its owner can read."""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from holdfast.masking.mask import Mask
from holdfast.masking.prompts import mask_prompt
from holdfast.model.untrusted_file import read_untrusted_file

HISTORY_FILE = "chat_history"
_MAX_PROMPTS = 1000
_MAX_PROMPT_LENGTH = 4000
# Enough for all prompts: a character has at most four bytes.
_MAX_BYTES = 5 * _MAX_PROMPTS * _MAX_PROMPT_LENGTH
_NEXT_LINE = "\n\t"
"""Separates the lines of one prompt: in the file, a line that begins with a tab continues a prompt."""


def load_history(file: Path) -> list[str]:
    """Return the stored prompts, oldest first."""
    if not _is_usable(file):
        return []
    with contextlib.suppress(OSError):
        content = read_untrusted_file(file, limit=_MAX_BYTES, follow_link=False)
        text = content.decode("utf-8", errors="replace").strip("\n")
        prompts = re.split(r"\n(?!\t)", text) if text else []
        return [prompt.replace(_NEXT_LINE, "\n") for prompt in prompts[-_MAX_PROMPTS:]]
    return []


def save_history(file: Path, prompts: Sequence[str], mask: Mask) -> None:
    """Append prompts to the file, which other chats may have changed since it was loaded. Errors are ignored."""
    if not prompts or not _is_usable(file):
        return
    stored = [*load_history(file), *prompts]
    masked = [mask_prompt(prompt, mask).strip() for prompt in stored if len(prompt) <= _MAX_PROMPT_LENGTH]
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):
        try:
            _write(new, masked[-_MAX_PROMPTS:])
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def _write(file: Path, prompts: Sequence[str]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as written:
        written.writelines(f"{prompt.replace(chr(10), _NEXT_LINE)}\n" for prompt in prompts)


def _is_usable(file: Path) -> bool:
    """Return whether the file is missing or a regular file. A link to /dev/null turns the history off, as in a shell."""
    return not file.is_symlink() and (file.is_file() or not file.exists())
