"""Authenticate the requests of MCP clients: by the bearer token in `Authorization`, and by nothing else."""

from collections.abc import Callable
from typing import Protocol

from holdfast.gateway.client_tokens import PREFIX, Tokens
from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.gateway.rate_limit import RateLimit
from holdfast.wire.http.request import Headers

_MAX_TOKEN_LENGTH = 8192
_MAX_MASKED = 4096  # tokens that are remembered as masked


class IssuerAuthenticator(Protocol):
    """Finds the credential of a token that the configured issuer created, not Holdfast (see `IssuerTokens`)."""

    def authenticate(self, text: str) -> Credential:
        """The credential of a valid token; raises `NotAuthenticatedError` otherwise."""
        ...

    def why_invalid(self, credential: Credential) -> str:
        """Why a credential that was accepted earlier is no longer valid; empty if it is still valid."""
        ...


class Authentication:
    """Finds the credential of each request, and counts its requests.

    `mask` is called with each new valid token, before the body of the request is read, so that the token is masked wherever
    the client puts it.
    """

    def __init__(
        self,
        tokens: Tokens,
        requests: RateLimit,
        *,
        issuer: IssuerAuthenticator | None = None,
        mask: Callable[[object, str], None],
    ) -> None:
        self._tokens = tokens
        self._requests = requests
        self._issuer = issuer
        self._mask = mask
        self._masked: dict[int, None] = {}

    def __call__(self, headers: Headers, client_address: str) -> Credential:
        """The credential of a request from this address; raises `NotAuthenticatedError`, or RATE_LIMITED."""
        try:
            token = _bearer_token(headers)
            if self._issuer is None or token.startswith(f"{PREFIX}_"):
                credential = self._tokens.authenticate(token)
            else:
                credential = self._issuer.authenticate(token)
        except NotAuthenticatedError as error:
            error.client_address = client_address
            raise
        self._mask_once(credential, token)
        self._requests.take(credential.id)
        return credential

    def why_invalid(self, credential: Credential) -> str:
        """Why a credential that was accepted earlier is no longer valid: revoked or expired; empty if it is still valid."""
        if credential.from_issuer:
            return "" if self._issuer is None else self._issuer.why_invalid(credential)
        return self._tokens.why_invalid(credential.id)

    def recheck(self, credential: Credential) -> None:
        """Raise `NotAuthenticatedError` if a credential that was accepted earlier is no longer valid."""
        if reason := self.why_invalid(credential):
            raise NotAuthenticatedError(
                "This token is no longer valid.", reason=reason, credential_id=credential.id
            )

    def _mask_once(self, credential: Credential, token: str) -> None:
        # Python's hash is randomised for each process, so that no client can choose tokens with the same hash.
        key = hash(token)
        if key in self._masked:
            return
        self._masked[key] = None
        if len(self._masked) > _MAX_MASKED:
            del self._masked[next(iter(self._masked))]
        self._mask(("gateway", credential.id), token)


def _bearer_token(headers: Headers) -> str:
    value = headers.get("authorization")
    if value is None:
        raise NotAuthenticatedError("This gateway needs a bearer token.", reason="no token")
    scheme, _, token = value.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_LENGTH:
        raise NotAuthenticatedError(
            "The header `Authorization` must be `Bearer`, a space and a token.",
            reason="malformed Authorization header",
        )
    return token
