"""Recognise requests that a session of this host sends to its own gateway."""

from pathlib import Path

from holdfast.model.context import CONTEXT_HEADER
from holdfast.model.errors import HoldfastError
from holdfast.token.claims import from_payload
from holdfast.token.jws import parse_token
from holdfast.token.signer import Signer
from holdfast.token.verifier import Verifier
from holdfast.wire.http.request import Headers

_HEADER = CONTEXT_HEADER.lower()


class OwnRequests:
    """Finds the session that sends a request, by its context token. `keys` is the folder of the keys that sign these tokens."""

    def __init__(self, keys: Path) -> None:
        self._file = Signer(keys).public_file
        self._verifier: Verifier | None = None

    def session_of(self, headers: Headers) -> str:
        """The id of the session that sends the request; empty if no session of a host with these keys does.

        Only a valid signature counts. Otherwise a client could find out which sessions exist.
        """
        token = headers.get(_HEADER)
        if not token:
            return ""
        try:
            if self._verifier is None:
                self._verifier = Verifier(self._file)
            # The token may be for any audience, because the gateway does not know every address by which it is reached.
            audience = from_payload(parse_token(token).payload).audience
            return self._verifier.verify(token, audience).context.session_id
        except HoldfastError:
            return ""
