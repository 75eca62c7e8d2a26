"""The tokens of a configured OAuth issuer: the credentials they stand for, and the metadata that leads clients to the issuer (RFC 9728)."""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.gateway.client_tokens import ENDED_BY_EXPIRY, PREFIX
from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.gateway.options import GatewayOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.settings.declarations import GatewaySettings
from holdfast.token.issuer_verifier import LEEWAY, IssuerVerifier
from holdfast.wire.http.request import Receive, Send, read_headers
from holdfast.wire.http.response import send_error, send_response

AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_METADATA = "/.well-known/oauth-protected-resource"
_REFUSED = "The token is not valid: it is not signed by the issuer, is for another server, or has expired."
_MAX_CREDENTIALS = 4096


class IssuerTokens:
    """Finds the credential of a JWT. All tokens of one user and client application stand for one credential."""

    def __init__(self, verifier: IssuerVerifier) -> None:
        self.verifier = verifier
        self._expiries: dict[str, float] = {}
        """When the newest token of each credential expires, least recently used first."""

    def authenticate(self, text: str) -> Credential:
        """The credential of a valid token; raises `NotAuthenticatedError` otherwise."""
        try:
            claims = self.verifier.verify(text)
        except HoldfastError as error:
            raise NotAuthenticatedError(
                _REFUSED, reason=f"token of the issuer refused: {error.message}"
            ) from None
        identity = json.dumps([self.verifier.issuer, claims.subject, claims.client_id])
        credential_id = f"jwt-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
        newest = max(claims.expires_at + LEEWAY, self._expiries.pop(credential_id, 0.0))
        self._expiries[credential_id] = newest
        if len(self._expiries) > _MAX_CREDENTIALS:
            del self._expiries[next(iter(self._expiries))]
        return Credential(
            id=credential_id,
            name=claims.client_id,
            user_id=claims.subject,
            expires_at=newest,
            from_issuer=True,
        )

    def why_invalid(self, credential: Credential) -> str:
        """`ENDED_BY_EXPIRY` if the newest token of this credential has expired; otherwise empty."""
        return "" if time.time() < self._expiries.get(credential.id, 0.0) else ENDED_BY_EXPIRY


class IssuerApp:
    """An ASGI layer around the gateway: serves the resource metadata, and fetches the issuer's keys before a token is verified."""

    def __init__(self, app: AsgiApp, verifier: IssuerVerifier, options: GatewayOptions) -> None:
        self._app = app
        self._verifier = verifier
        self._options = options
        self._resource_path = urlsplit(verifier.audience).path.rstrip("/")
        self._metadata = json.dumps(
            {
                "resource": verifier.audience,
                "authorization_servers": [verifier.issuer],
                "bearer_methods_supported": ["header"],
                "resource_name": "Holdfast",
            }
        ).encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request for the metadata. Before any other request is passed on, fetch the keys for its token."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root_path: str = scope.get("root_path", "")
        if self._is_metadata(scope["path"].removeprefix(root_path), root_path) and scope["method"] in (
            "GET",
            "HEAD",
        ):
            try:
                self._options.allowed_hosts.check(read_headers(scope["headers"]))
            except HoldfastError as error:
                self._options.on_refusal(error, None)
                await send_error(send, error)
                return
            body = self._metadata if scope["method"] == "GET" else b""
            await send_response(send, 200, body, ((b"content-type", b"application/json"),))
            return
        if (token := _issuer_token(scope)) is not None:
            try:
                await self._verifier.prepare(token)
            except HoldfastError as error:
                if error.code is codes.BAD_KEY:
                    unavailable = _keys_unavailable()
                    self._options.on_refusal(unavailable, None)
                    await send_error(send, unavailable, status=503)
                    return
                # The gateway refuses the token and records the refusal.
        challenge = issuer_challenge(self._verifier.audience, root_path).encode()

        async def send_with_challenge(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                other_headers = [header for header in message["headers"] if header[0] != b"www-authenticate"]
                message = {**message, "headers": [*other_headers, (b"www-authenticate", challenge)]}
            await send(message)

        await self._app(scope, receive, send_with_challenge)

    def _is_metadata(self, path: str, root_path: str) -> bool:
        return path in (
            _METADATA,
            f"{_METADATA}{self._resource_path}",
            _METADATA + self._resource_path.removeprefix(root_path),
        )


def issuer_challenge(audience: str, root_path: str) -> str:
    """The value of `WWW-Authenticate` that leads a client to the metadata.

    A gateway that is mounted at `root_path` gets only the requests below it, so it serves the metadata below it.
    """
    parts = urlsplit(audience)
    path = parts.path.rstrip("/")
    mount = root_path if path.startswith(f"{root_path}/") else ""
    url = urlunsplit((parts.scheme, parts.netloc, f"{mount}{_METADATA}{path.removeprefix(mount)}", "", ""))
    return f'Bearer realm="holdfast", resource_metadata="{url}"'


def issuer_verifier(settings: GatewaySettings) -> IssuerVerifier:
    """The verifier of the configured issuer's tokens. Raise BAD_SETTINGS if one of the URLs in the settings is not valid."""
    from holdfast.token.fetch_issuer_keys import KeySetSource, check_url

    try:
        check_url(settings.audience)
        source = KeySetSource(settings.issuer, settings.jwks_url)
    except HoldfastError as error:
        raise HoldfastError(
            codes.BAD_SETTINGS,
            f"{error.message} Correct gateway.issuer, gateway.jwks_url, or gateway.audience (the public URL of this gateway).",
        ) from None
    return IssuerVerifier(settings.issuer, settings.audience, source.fetch)


def _issuer_token(scope: MutableMapping[str, Any]) -> str | None:
    """The bearer token of a request, if it may be one of the issuer's."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer " and value.count(b".") == 2:
            token = value[7:].strip().decode("latin-1")
            return None if token.startswith(PREFIX) or len(token) > 8192 else token
    return None


def _keys_unavailable() -> HoldfastError:
    return HoldfastError(
        codes.BUSY,
        "The issuer's keys could not be fetched, so its tokens cannot be verified now. Try again later.",
    )
