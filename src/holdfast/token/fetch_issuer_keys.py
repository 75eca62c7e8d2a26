"""Fetches the key set of an issuer. Size and time are limited."""

import ipaddress
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads
from holdfast.token.jws import parse_object

_TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 512 * 1024  # a larger answer is refused
_threads = WorkerThreads("issuer-keys", threads=2)


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
        return await _threads.run(self._fetch)

    def _fetch(self) -> bytes:
        return _get(self._jwks_url or self._find_jwks_url())

    def _find_jwks_url(self) -> str:
        failure: HoldfastError | None = None
        for url in _metadata_urls(self._issuer):
            try:
                metadata = parse_object(_get(url))
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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to an address that `check_url` refuses."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _get(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    chunks: list[bytes] = []
    size = 0
    try:
        with opener.open(
            urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=_TIMEOUT_SECONDS
        ) as answer:
            while chunk := answer.read1(65536):
                size += len(chunk)
                if size > _MAX_BYTES or time.monotonic() > deadline:
                    raise _cannot_fetch(url, "the answer is too large or too slow")
                chunks.append(chunk)
    except urllib.error.HTTPError as error:
        raise _cannot_fetch(url, f"status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise _cannot_fetch(url, type(error).__name__) from None
    return b"".join(chunks)


def _cannot_fetch(url: str, reason: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"Could not fetch {url[:200]!r}: {reason}.")
