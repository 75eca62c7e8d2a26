"""Sign the `requestState` that a client keeps: it is valid once, for one session and request, and for a limited time."""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model import codes
from holdfast.model.call import Grant
from holdfast.model.errors import HoldfastError
from holdfast.wire.messages import Raw

STATE_SECONDS = 600.0
MAX_STATES_PER_SESSION = 256  # if a client leaves more of them unanswered, the oldest become invalid
_MAC_BYTES = 16


class State(msgspec.Struct, array_like=True, frozen=True):
    """The content of a `requestState`: a parked request of this process, or the server's own state."""

    parked: str = ""
    """The id of the parked request; empty if the state is the server's own."""
    server: str = ""
    """The server that asks."""
    server_state: str | None = None
    """The server's own state; None if it sent none."""
    nonce: str = ""
    """A random text, set by `sign`: each state is valid only once."""
    grant: Any = None
    """The user's permission for the call. The signer keeps it, so a client cannot see or change it."""


class BadStateError(HoldfastError):
    """A `requestState` that is not valid for this session and request."""


class StateSigner:
    """Signs and verifies the states of one session. The key is random, so no state is valid after a restart."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._unused: dict[
            str, Grant | None
        ] = {}  # the nonces and grants of the states that are still valid, oldest first

    def sign(self, state: State, *, session: str, method: str, request: str) -> str:
        """The state as the client gets it. `request` is the `digest` of the request that it belongs to."""
        with_nonce = msgspec.structs.replace(state, nonce=secrets.token_hex(8), grant=None)
        self._unused[with_nonce.nonce] = state.grant
        if len(self._unused) > MAX_STATES_PER_SESSION:
            del self._unused[next(iter(self._unused))]
        payload = int(time.monotonic() + STATE_SECONDS).to_bytes(8, "big") + msgspec.json.encode(with_nonce)
        mac = self._mac(payload, session, method, request)
        return base64.urlsafe_b64encode(mac + payload).decode()

    def verify(self, text: str, *, session: str, method: str, request: str) -> State:
        """The state that a client has sent back. A state is valid only once.

        Raise `BadStateError` unless it was signed for this session and request.
        """
        try:
            signed = base64.b64decode(text, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            signed = b""
        mac, payload = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        is_valid = hmac.compare_digest(mac, self._mac(payload, session, method, request))
        if is_valid and int.from_bytes(payload[:8], "big") >= time.monotonic():
            state = msgspec.json.decode(payload[8:], type=State)
            if state.nonce in self._unused:
                return msgspec.structs.replace(state, grant=self._unused.pop(state.nonce))
        raise BadStateError(
            codes.BAD_ARGUMENT,
            "The requestState is not valid: it belongs to another session or request, was changed or used before, "
            f"or is older than {STATE_SECONDS:g} s. Send the request again without it.",
        )

    def _mac(self, payload: bytes, *bound: str) -> bytes:
        text = msgspec.json.encode(bound) + payload
        return hmac.digest(self._key, text, "sha256")[:_MAC_BYTES]


def digest(members: Mapping[str, Raw]) -> str:
    """A digest of the name, the arguments and all other params of a request, as the client has written them."""
    texts = sorted((key, bytes(value).decode()) for key, value in members.items())
    return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()
