"""The saved logins to remote servers: one file per address, which only the user can read."""

import hashlib
import os
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import mkstemp

import msgspec

from holdfast.model.json import Json
from holdfast.model.private_files import make_private_folder
from holdfast.model.server import InProcess, ServerSpec, Source, Stdio
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.token.claims import audience_of

_MAX_BYTES = 1024 * 1024
_MAX_LOGINS = 256  # how many saved logins are read to mask their secrets
LOGIN_FOLDER = "oauth"
"""The folder of the saved logins, in the data folder."""


class SavedLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens from an authorization server, and the metadata that is needed to refresh them."""

    url: str
    tokens: dict[str, Json]
    expires_at: float | None = None
    """When the access token expires, in seconds since 1970."""
    client: dict[str, Json] | None = None
    """Holdfast's registration as an OAuth client."""
    server: dict[str, Json] | None = None
    """The metadata of the authorization server (RFC 8414)."""
    resource: dict[str, Json] | None = None
    """The metadata of the MCP server as a protected resource (RFC 9728)."""


def uses_login(spec: ServerSpec) -> bool:
    """Whether Holdfast may use a login: for a remote server that no client defined, and whose entry has no credentials."""
    if spec.source is Source.CLIENT or isinstance(spec.transport, Stdio | InProcess):
        return False
    return not any(name.lower() == "authorization" for name in spec.transport.headers)


def how_to_log_in(spec: ServerSpec) -> str:
    """What to do if the server requires a login."""
    if spec.source is Source.APP:
        return 'Give its entry the credentials: "headers": {"Authorization": "Bearer …"}.'
    return f"Run: {shlex.join(['holdfast', 'servers', 'login', spec.name])}"


def login_file(folder: Path, url: str) -> Path:
    """The file with the login for this address. Servers with the same address share it."""
    return folder / f"{hashlib.sha256(audience_of(url).encode()).hexdigest()[:32]}.json"


def read_login(file: Path) -> SavedLogin | None:
    """The login in this file; None if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(read_untrusted_file(file, limit=_MAX_BYTES), type=SavedLogin)
    except (OSError, msgspec.MsgspecError):
        return None


def saved_credentials(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The file and the secrets of each saved login."""
    for file in islice(folder.glob("*.json"), _MAX_LOGINS):
        if (login := read_login(file)) is not None:
            tokens, client = login.tokens, login.client or {}
            values = (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret"))
            yield file, [value for value in values if isinstance(value, str)]


def remove_login(file: Path) -> bool:
    """Remove the login. Return whether there was one."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def write_login(file: Path, login: SavedLogin) -> None:
    """Write the login to the file, atomically."""
    make_private_folder(file.parent)
    descriptor, name = mkstemp(dir=file.parent, prefix=".login-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as temporary:
            temporary.write(msgspec.json.encode(login))
            temporary.flush()
            os.fsync(temporary.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
