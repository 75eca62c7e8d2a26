"""Reads and writes a file that lists servers: the user's own, or a project's `.mcp.json`."""

import json
import os
import tempfile
from pathlib import Path

from holdfast import settings
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_errors import name_file_in_errors
from holdfast.model.json import Json, JsonObject
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.load import PROJECT_FILE
from holdfast.wire.strict_json import StrictJsonError

_MAX_BYTES = 16 * 1024 * 1024
_CORRECT_FILE = "Correct the file, then try again."


def choose_file(*, project: bool) -> Path:
    """The user's own file or, for `project`, the `.mcp.json` of the current folder. Raise if the `.mcp.json` is a link."""
    if not project:
        return settings.load().servers.user_file
    file = Path(PROJECT_FILE).absolute()
    if file.is_symlink():  # the link may lead to the user's own list, whose servers need no approval
        raise _link_error(file)
    return file


def read_servers_file(file: Path) -> tuple[JsonObject, dict[str, Json]]:
    """The content of the file, and the servers in it. A file that does not exist counts as empty."""
    try:
        content = decode_json_with_comments(read_untrusted_file(file, limit=_MAX_BYTES))
    except FileNotFoundError:
        content = {}
    except (OSError, StrictJsonError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{file} cannot be read: {reason}.", hint=_CORRECT_FILE
        ) from None
    if not isinstance(content, dict):
        raise HoldfastError(codes.BAD_ARGUMENT, f"{file} is not a JSON object.", hint=_CORRECT_FILE)
    servers = content.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise HoldfastError(
            codes.BAD_ARGUMENT, f'"mcpServers" in {file} is not a JSON object.', hint=_CORRECT_FILE
        )
    return content, servers


def _link_error(file: Path) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"{file} is a link, so it is not changed: it leads to '{os.path.realpath(file)}'.",
        hint="Replace the link with a file of the project. To change your own list, run the command without --project.",
    )


def check_is_plain_json(file: Path, *, is_project: bool = False) -> None:
    """Raise if the file has comments or trailing commas: writing it would remove them."""
    try:
        text = read_untrusted_file(file, limit=_MAX_BYTES)
    except OSError:
        return
    try:
        json.loads(text)
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{file} has comments or trailing commas, which would be lost.",
            hint=f"Change it by hand: holdfast servers edit{' --project' if is_project else ''}",
        ) from None


def write_servers_file(
    file: Path, content: JsonObject, *, mode: int = 0o600, is_project: bool = False
) -> None:
    """Replace the file atomically. By default only its owner can read it, because it may contain secrets.

    If the user's own file is a link, the file that it leads to is replaced. A link of a project is never followed.
    """
    with name_file_in_errors(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace_file(file if is_project else file.resolve(), content, mode)


def _replace_file(target: Path, content: JsonObject, mode: int) -> None:
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
