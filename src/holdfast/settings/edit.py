"""Sets values of one section in the settings file, and leaves the rest of the file unchanged."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.settings.loader import load

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def set_values(file: Path, section: str, values: Mapping[str, str]) -> None:
    """Write strings to a section; an empty string removes its key. If the result is invalid, raise BAD_SETTINGS and change nothing."""
    file = file.resolve()  # if the file is a link, change the file that it leads to
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    changed = _with_values(text, section, values)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(changed, encoding="utf-8")
        draft.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o600)
        try:
            load(draft, {})
        except HoldfastError as error:
            raise HoldfastError(
                error.code,
                f"{file} was not changed, because the result would be invalid. {error.message.replace(str(draft), str(file))}",
                hint="Give another value, or change the file yourself.",
            ) from None
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _with_values(text: str, section: str, values: Mapping[str, str]) -> str:
    """Return the text of the file with these values at the beginning of the section. Their old lines are removed."""
    header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\][^\n]*\n?", text, re.MULTILINE)
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value)
    if header is None:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}[{section}]\n{lines}"
    start = header.end()
    following = _TABLE.search(text, start)
    end = following.start() if following else len(text)
    body = text[start:end]
    for name in values:
        body = re.sub(rf"^[ \t]*{re.escape(name)}[ \t]*=[^\n]*\n?", "", body, flags=re.MULTILINE)
    head = text[:start] if text[:start].endswith("\n") else f"{text[:start]}\n"
    return f"{head}{lines}{body}{text[end:]}"
