"""Reads and writes a file that lists servers: the user's own, or a project's `.mcp.json`."""

import json
import os
import tempfile
from pathlib import Path

from holdfast import settings
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.load import PROJECT_FILE
from holdfast.wire.strict_json import StrictJsonError

_MAX_BYTES = 16 * 1024 * 1024


def choose_file(*, project: bool) -> Path:
    """The `.mcp.json` of the current folder, or the user's own file."""
    return Path(PROJECT_FILE).absolute() if project else settings.load().servers.user_file


def read_servers_file(file: Path) -> tuple[JsonObject, dict[str, Json]]:
    """The content of the file, and the servers in it. A file that does not exist counts as empty."""
    try:
        content = decode_json_with_comments(read_untrusted_file(file, limit=_MAX_BYTES))
    except FileNotFoundError:
        content = {}
    except (OSError, StrictJsonError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{file} cannot be read: {reason}.", hint="Fix the file first."
        ) from None
    if not isinstance(content, dict):
        raise HoldfastError(codes.BAD_ARGUMENT, f"{file} is not a JSON object.", hint="Fix the file first.")
    servers = content.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise HoldfastError(
            codes.BAD_ARGUMENT, f'{file} has no object "mcpServers".', hint="Fix the file first."
        )
    return content, servers


def check_has_no_comments(file: Path) -> None:
    """Raise an error if writing the file would lose comments."""
    try:
        text = read_untrusted_file(file, limit=_MAX_BYTES)
    except OSError:
        return
    try:
        json.loads(text)
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{file} has comments, which would be lost.",
            hint="Change it by hand: holdfast servers edit",
        ) from None


def write_servers_file(file: Path, content: JsonObject, *, mode: int = 0o600) -> None:
    """Replace the file atomically. By default only its owner can read it, because it may contain secrets."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = file.resolve()  # a link stays a link
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".mcp-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            os.fchmod(descriptor, mode)
            json.dump(content, stream, indent=2, ensure_ascii=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
