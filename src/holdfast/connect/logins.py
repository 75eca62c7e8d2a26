"""Where logins to remote servers are kept: one file per address, readable by its owner alone."""

import hashlib
import os
from pathlib import Path
from tempfile import mkstemp

import msgspec

from holdfast.model.json import Json
from holdfast.model.server import InProcess, ServerSpec, Source, Stdio
from holdfast.token.audience import audience_of

LOGINS = "oauth"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What an authorization server gave us, and what it said about itself."""

    url: str
    tokens: dict[str, Json]
    expires_at: float | None = None
    client: dict[str, Json] | None = None
    server: dict[str, Json] | None = None
    resource: dict[str, Json] | None = None


def has_login(spec: ServerSpec) -> bool:
    """Whether people log in to it here: not where its entry gives credentials, nor for what a client brought."""
    if spec.source is Source.CLIENT or isinstance(spec.transport, Stdio | InProcess):
        return False
    return not any(name.lower() == "authorization" for name in spec.transport.headers)


def login_file(folder: Path, url: str) -> Path:
    """The file of the server at this address; it belongs to the address, whatever the server is called."""
    return folder / f"{hashlib.sha256(audience_of(url).encode()).hexdigest()[:32]}.json"


def read_login(file: Path) -> Kept | None:
    """What is kept there; None where nothing is, or nothing that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def write_login(file: Path, kept: Kept) -> None:
    """Keep it, whole or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = mkstemp(dir=file.parent, prefix=".login-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as temporary:
            temporary.write(msgspec.json.encode(kept))
            temporary.flush()
            os.fsync(temporary.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
