"""The levels of log messages: which the client wants, and which each server was told."""

from contextlib import suppress
from typing import Any

import msgspec

from holdfast.gateway.client_call import LOG_LEVEL_KEY, ClientCall
from holdfast.gateway.offer import Offer
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.wire.mcp.eras import Era
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

_decode_members = make_decoder(dict[str, Raw])
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# Read once, because every request needs it: in Python 3.11, reading a member of an enum is slow.
_HANDSHAKE = Era.HANDSHAKE


class LogLevels:
    """The levels of one session."""

    def __init__(self, era: Era) -> None:
        self._era = era
        self._wanted = ""
        """The level that a handshake-era client has set; empty if it has set none."""
        self._sent: dict[str, str] = {}
        """The level that was sent to each handshake-era server. Forgotten when a server's tools are listed, which happens after a restart."""

    async def set(self, offer: Offer, level: str) -> None:
        """Set the level of a handshake-era client, at every server that has log messages."""
        if level not in LEVELS:
            raise HoldfastError(codes.BAD_ARGUMENT, f"The level must be one of {', '.join(LEVELS)}.")
        self._wanted = level
        for server in await offer.servers_with_capability("logging"):
            await self._send(offer, server, level)

    def wanted_by(self, call: ClientCall) -> str:
        """The level that the client wants for a request; empty if it has chosen none.

        A modern client gives its level in each request. A handshake-era client has set it, perhaps before the server started.
        """
        if self._era is _HANDSHAKE:
            return self._wanted
        level = call.log_level
        return level if isinstance(level, str) and level in LEVELS else ""

    async def send_to(self, offer: Offer, server: str, level: str) -> None:
        """Send this level to a server, before a request to it, unless the server has the level already."""
        if server in await offer.servers_with_capability("logging"):
            await self._send(offer, server, level)

    def meta_for(self, offer: Offer, server: str, call: ClientCall) -> JsonObject | None:
        """The client's `_meta`. For a modern server, it contains the level that a handshake-era client has set."""
        if self._era is _HANDSHAKE and self._wanted and offer.era_of(server) is Era.MODERN:
            return {**call.meta, LOG_LEVEL_KEY: self._wanted}
        return call.meta

    def forget_sent(self) -> None:
        """Forget which level each server was told: a server may have been restarted, and then gets the level again."""
        self._sent.clear()

    async def _send(self, offer: Offer, server: str, level: str) -> None:
        """Send the level to a handshake-era server; a modern one gets it in each request. Errors are ignored."""
        if offer.era_of(server) is Era.HANDSHAKE and self._sent.get(server) != level:
            self._sent[server] = level
            with suppress(HoldfastError):
                await offer.session.forward(server, "logging/setLevel", {"level": level}, timeout=60.0)


class _Message(msgspec.Struct):
    level: str = "info"


def with_server_name(params: Raw, server: str) -> Raw:
    """A log message whose logger begins with the name of the server: `server` or `server/logger`."""
    try:
        members: dict[str, Any] = {**_decode_members(params)}
        logger = msgspec.json.decode(members.get("logger", Raw(b'""')), type=str)
    except DECODE_ERRORS:
        return params
    members["logger"] = f"{server}/{logger}" if logger else server
    return Raw(msgspec.json.encode(members))


def is_at_least(params: Raw, wanted: Json) -> bool:
    """Whether a log message is at least as severe as a client wants. False if the client wants none."""
    if wanted not in LEVELS:
        return False
    try:
        level = msgspec.json.decode(params, type=_Message).level
    except DECODE_ERRORS:
        return False
    return level in LEVELS and LEVELS.index(level) >= LEVELS.index(str(wanted))
