"""The tokens of MCP clients: one private file for each, with what it allows and the hash of its secret.

A token is `hft_<id>_<secret>`. The file is found by the id, which is public; the secret is compared in constant time.
A file is replaced as a whole and read again when it has changed, so a revocation reaches every process at its next request.
"""

import hashlib
import hmac
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

import msgspec

from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_errors import name_file_in_errors
from holdfast.model.permission import Mode
from holdfast.model.private_files import make_private_folder
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.model.trust import Trust
from holdfast.model.untrusted_file import is_writable_by_others, open_untrusted_file, read_descriptor

TOKENS_FOLDER = "tokens"
"""The name of the folder with the tokens, in the data folder."""
PREFIX = "hft"
_TOKEN = re.compile(r"hft_([a-z2-7]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[a-z2-7]{12}")
_ID_BYTES, _SECRET_BYTES = 8, 32
_ID_LENGTH = 12
_MAX_FILE_BYTES = 64 * 1024
_MAX_CACHED = 4096
_MAX_NAME = 80
_NO_HASH = "0" * 64  # no secret has this hash
ENDED_BY_EXPIRY = "the token has expired"
"""Why a session has ended."""
_ENDED_BY_REVOCATION = "the token was revoked"
_REVOKED_TOKEN, _EXPIRED_TOKEN = "revoked token", "expired token"  # why a request was refused, for the audit
_REFUSED = "The token is not valid: it is unknown, expired or revoked."

FileVersion = tuple[int, ...]
"""Numbers of a file's status. They differ if the file was changed."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a token's file. It does not contain the token. Times are in seconds since 1970.

    `cwd` and the fields after it are those of `Credential`.
    """

    id: str
    name: str
    hash: str
    """The SHA-256 of the token's secret, in hex digits."""
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    cwd: str = ""
    workspace: str = ""
    trust: Trust | None = None
    mode: Mode | None = None
    servers: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    user_id: str | None = None

    def to_credential(self) -> Credential:
        """The credential that this token stands for."""
        create = shlex.join(
            ("holdfast", "tokens", "create", self.name or "NAME", "--like", self.id, "--mode", "auto")
        )
        return Credential(
            id=self.id,
            name=self.name,
            cwd=self.cwd,
            workspace=self.workspace,
            trust=self.trust,
            mode=self.mode,
            servers=None if self.servers is None else frozenset(self.servers),
            tools=None if self.tools is None else tuple(map(parse_tool_pattern, self.tools)),
            user_id=self.user_id,
            expires_at=self.expires_at,
            how_to_stop_asking=f"the operator can give the client a token with the same limits and the mode auto: {create}",
        )


class Tokens:
    """The tokens in a folder of the data folder. The folder is created with the first token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder_text = str(folder)
        self._cached: dict[str, tuple[FileVersion, StoredToken, Credential]] = {}

    def create(self, credential: Credential) -> tuple[str, StoredToken]:
        """Create a token that allows what this credential does; its `id` is ignored. Return the token, and what is stored for it."""
        if not credential.name.isprintable() or len(credential.name) > _MAX_NAME:
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"A token's name must have at most {_MAX_NAME} visible characters."
            )
        make_private_folder(self._folder)
        token_id, secret = _new_id(), secrets.token_urlsafe(_SECRET_BYTES)
        stored = StoredToken(
            id=token_id,
            name=credential.name,
            hash=_hash(secret),
            created_at=time.time(),
            expires_at=credential.expires_at,
            cwd=credential.cwd,
            workspace=credential.workspace,
            trust=credential.trust,
            mode=credential.mode,
            servers=None if credential.servers is None else tuple(sorted(credential.servers)),
            tools=None if credential.tools is None else tuple(map(str, credential.tools)),
            user_id=credential.user_id,
        )
        with name_file_in_errors(self._folder / f"{stored.id}.json"):
            self._write(stored)
        return f"{PREFIX}_{token_id}_{secret}", stored

    def list(self) -> tuple[StoredToken, ...]:
        """All tokens, the oldest first."""
        return tuple(sorted(self._scan(), key=lambda token: (token.created_at, token.id)))

    def find(self, id_or_name: str) -> tuple[StoredToken, ...]:
        """The token with this id, or the tokens with this name: the ones that are not revoked, if there are any."""
        tokens = self.list()
        with_id = tuple(token for token in tokens if token.id == id_or_name)
        with_name = tuple(token for token in tokens if token.name == id_or_name)
        matching = with_id or tuple(token for token in with_name if token.revoked_at is None) or with_name
        if not matching:
            raise HoldfastError(codes.UNKNOWN_TOKEN, f"There is no token {id_or_name[:_MAX_NAME]!r}.")
        return matching

    def revoke(self, id_or_name: str) -> tuple[StoredToken, ...]:
        """Revoke the token with this id, or all tokens with this name. Return them."""
        now = time.time()
        return tuple(
            token if token.revoked_at is not None else self._revoke(token, now)
            for token in self.find(id_or_name)
        )

    def authenticate(self, text: str) -> Credential:
        """The credential of a token; raises `NotAuthenticatedError` if the token is malformed, unknown, expired or revoked."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            raise NotAuthenticatedError(
                "The bearer token is not a token of this gateway.", reason="malformed token"
            )
        found = self._find(match[1])
        # An unknown id costs the same comparison as a wrong secret.
        stored_hash = _NO_HASH if found is None else found[0].hash
        is_same = hmac.compare_digest(_hash(match[2]), stored_hash)
        if found is None or not is_same:
            raise NotAuthenticatedError(_REFUSED, reason="unknown token")
        stored, credential = found
        if (reason := _why_invalid(stored)) is not None:
            raise NotAuthenticatedError(_REFUSED, reason=reason, credential_id=stored.id)
        return credential

    def why_invalid(self, token_id: str) -> str:
        """Why the sessions of this token must end: it was revoked or has expired. Empty if it is valid."""
        found = self._find(token_id) if _ID.fullmatch(token_id) else None
        reason = _REVOKED_TOKEN if found is None else _why_invalid(found[0])
        return {None: "", _REVOKED_TOKEN: _ENDED_BY_REVOCATION, _EXPIRED_TOKEN: ENDED_BY_EXPIRY}[reason]

    def _revoke(self, token: StoredToken, now: float) -> StoredToken:
        """Mark a token as revoked. If its file cannot be written, remove it."""
        revoked = msgspec.structs.replace(token, revoked_at=now)
        try:
            self._write(revoked)
        except OSError:  # the disk is full, for example: removing the file needs no space
            file = self._folder / f"{token.id}.json"
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise HoldfastError(
                    codes.STORE_READ_ONLY,
                    f"The token {token.id} ({token.name}) was not revoked and is still valid: '{file}' can be neither "
                    f"changed nor removed ({error.strerror}).",
                    hint="To keep out its client, stop `holdfast up`. Then make the file writable, and revoke the token again.",
                ) from None
        return revoked

    def _scan(self) -> Iterator[StoredToken]:
        try:
            files = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return
        for file in files:
            is_token = file.suffix == ".json" and _ID.fullmatch(file.stem)
            if is_token and (found := self._find(file.stem)) is not None:
                yield found[0]

    def _find(self, token_id: str) -> tuple[StoredToken, Credential] | None:
        """The token with this id, read again if its file has changed. Failed look-ups are not cached."""
        file = f"{self._folder_text}/{token_id}.json"  # not a `Path`, which would slow down every request
        try:
            version = _file_version(os.lstat(file))
        except OSError:
            self._cached.pop(token_id, None)
            return None
        cached = self._cached.get(token_id)
        if cached is not None and cached[0] == version:
            return cached[1:]
        self._cached.pop(token_id, None)
        if (read := _read(Path(file))) is None or read[1].id != token_id:
            return None
        version, stored = read
        try:
            credential = stored.to_credential()
        except ValueError:  # a damaged pattern
            return None
        if len(self._cached) >= _MAX_CACHED:
            del self._cached[next(iter(self._cached))]
        self._cached[token_id] = version, stored, credential
        return stored, credential

    def _write(self, token: StoredToken) -> None:
        """Write the file atomically: write a temporary file, then rename it."""
        descriptor, temporary = mkstemp(prefix=".new-", dir=self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(token)) + b"\n")
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(self._folder / f"{token.id}.json")
        finally:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()


def _read(file: Path) -> tuple[FileVersion, StoredToken] | None:
    """The content of a token's file; None if it is missing, damaged, or could have been written by another user."""
    try:
        descriptor = open_untrusted_file(file, follow_link=False)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or is_writable_by_others(status):
            return None
        text = read_descriptor(descriptor, limit=_MAX_FILE_BYTES, name=str(file))
        return _file_version(status), msgspec.json.decode(text, type=StoredToken)
    except (OSError, msgspec.MsgspecError):
        return None
    finally:
        os.close(descriptor)


def _why_invalid(token: StoredToken) -> str | None:
    """Why the token is not valid, for the audit; None if it is valid."""
    if token.revoked_at is not None:
        return _REVOKED_TOKEN
    if token.expires_at is not None and time.time() >= token.expires_at:
        return _EXPIRED_TOKEN
    return None


def _file_version(status: os.stat_result) -> FileVersion:
    return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode)


def _hash(secret: str) -> str:
    # A fast hash is enough: the secret has 256 random bits.
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _new_id() -> str:
    from base64 import b32encode

    return b32encode(secrets.token_bytes(_ID_BYTES)).decode("ascii").lower()[:_ID_LENGTH]
