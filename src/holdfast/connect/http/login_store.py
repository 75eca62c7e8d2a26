"""Saved logins to remote servers: one file per address, readable by its owner only."""

import hashlib
import os
from pathlib import Path
from tempfile import mkstemp

import msgspec

from holdfast.model.json import Json
from holdfast.model.server import InProcess, ServerSpec, Source, Stdio
from holdfast.token.claims import audience_of

LOGINS = "oauth"
"""The folder of logins inside the data folder."""


class SavedLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of an authorization server, and the metadata that is needed to refresh them."""

    url: str
    tokens: dict[str, Json]
    expires_at: float | None = None
    client: dict[str, Json] | None = None
    server: dict[str, Json] | None = None
    resource: dict[str, Json] | None = None


def uses_login(spec: ServerSpec) -> bool:
    """Whether the user can log in to this server: not if its entry has credentials, nor if a client brought it."""
    if spec.source is Source.CLIENT or isinstance(spec.transport, Stdio | InProcess):
        return False
    return not any(name.lower() == "authorization" for name in spec.transport.headers)


def login_file(folder: Path, url: str) -> Path:
    """The file for the server at this address. A login belongs to the address, not to the server's name."""
    return folder / f"{hashlib.sha256(audience_of(url).encode()).hexdigest()[:32]}.json"


def read_login(file: Path) -> SavedLogin | None:
    """The login in this file; None if there is no file, or none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=SavedLogin)
    except (OSError, msgspec.MsgspecError):
        return None


def write_login(file: Path, login: SavedLogin) -> None:
    """Replace the file, atomically."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
