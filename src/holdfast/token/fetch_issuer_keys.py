"""Fetches the key set of an issuer. Size and time are limited."""

import asyncio
import ipaddress
from urllib.parse import urlsplit, urlunsplit

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.fetch_url import Deadline, FetchError, fetch_url
from holdfast.model.worker_threads import WorkerThreads
from holdfast.token.jws import parse_object

FETCH_SECONDS = 10.0
"""How long it may take to find and fetch a key set, with all its requests."""
_GRACE_SECONDS = 1.0  # after that, for the thread to end; resolving a name may take longer
_MAX_BYTES = 512 * 1024  # a larger answer is refused
_threads = WorkerThreads("issuer-keys", threads=8, per_owner=1)


class KeySetSource:
    """Fetches the key set of an issuer from `jwks_url`, or else from the address in the issuer's metadata (RFC 8414, OpenID Connect)."""

    def __init__(self, issuer: str, jwks_url: str = "") -> None:
        check_url(issuer)
        if jwks_url:
            check_url(jwks_url)
        self._issuer = issuer
        self._jwks_url = jwks_url

    async def fetch(self) -> bytes:
        """The key set as the issuer sent it. Raise BAD_KEY if it cannot be fetched."""
        try:
            async with asyncio.timeout(FETCH_SECONDS + _GRACE_SECONDS):
                return await _threads.run(self._fetch, owner=self._issuer)
        except TimeoutError:
            raise _cannot_fetch(self._jwks_url or self._issuer, "it took too long") from None

    def _fetch(self) -> bytes:
        deadline = Deadline(FETCH_SECONDS)
        return _get(self._jwks_url or self._find_jwks_url(deadline), deadline)

    def _find_jwks_url(self, deadline: Deadline) -> str:
        failure: HoldfastError | None = None
        for url in _metadata_urls(self._issuer):
            try:
                metadata = parse_object(_get(url, deadline))
            except HoldfastError as error:
                failure = error
                continue
            except ValueError:
                continue
            jwks_uri = metadata.get("jwks_uri")
            # The metadata of another issuer could name other keys (RFC 8414, section 3.3).
            if metadata.get("issuer") == self._issuer and isinstance(jwks_uri, str):
                check_url(jwks_uri)
                return jwks_uri
        raise failure or HoldfastError(
            codes.BAD_KEY,
            f"The metadata of the issuer {self._issuer!r} has no `jwks_uri`, or names another issuer.",
        )


def check_url(url: str) -> None:
    """Raise BAD_KEY unless the URL is https, or http to this machine. Over http, an attacker could replace keys."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname
    except ValueError:  # such as https://[
        scheme, host = "", None
    if host and (scheme == "https" or (scheme == "http" and _is_loopback(host))):
        return
    raise HoldfastError(
        codes.BAD_KEY,
        f"{url[:200]!r} cannot be used: the URL must begin with https:// (or http://, if it is on this machine).",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _metadata_urls(issuer: str) -> tuple[str, ...]:
    """The possible addresses of an issuer's metadata: by RFC 8414, then by OpenID Connect."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")

    def at(new_path: str) -> str:
        return urlunsplit((parts.scheme, parts.netloc, new_path, "", ""))

    return (
        at(f"/.well-known/oauth-authorization-server{path}"),
        at(f"{path}/.well-known/openid-configuration"),
    )


def _get(url: str, deadline: Deadline) -> bytes:
    try:
        return fetch_url(url, deadline=deadline, max_bytes=_MAX_BYTES)
    except FetchError as error:
        raise _cannot_fetch(url, str(error)) from None


def _cannot_fetch(url: str, reason: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"Could not fetch {url[:200]!r}: {reason}.")
