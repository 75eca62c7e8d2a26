"""The two eras of MCP: their versions, and the `_meta` of their requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.json import Json, JsonObject

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"


class Era(StrEnum):
    """`handshake`: a connection begins with `initialize`. `modern`: every request is self-contained."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


class Implementation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name and version that an MCP client or server reports."""

    name: str = ""
    version: str = ""
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInfo:
    """What this end of a connection reports about itself, as a client or as a server."""

    implementation: Implementation
    capabilities: JsonObject = field(default_factory=dict[str, Json])
    instructions: str = ""
    """A server's instructions for the model; empty for a client."""
    meta: JsonObject = field(default_factory=dict[str, Json])
    """Members that a client adds to the `_meta` of every request. Callers of the client cannot override them."""


def request_meta(
    own_info: OwnInfo,
    era: Era,
    version: str,
    extra: Mapping[str, Any],
    capabilities: JsonObject | None = None,
) -> dict[str, Any]:
    """The `_meta` of one request. The members that the era and `own_info` require override those in `extra`.

    `capabilities` replaces the capabilities of `own_info`, if the request is sent for another client.
    """
    meta: dict[str, Any] = {**extra, **own_info.meta}
    if era is Era.MODERN:
        meta[VERSION_KEY] = version
        meta[CAPABILITIES_KEY] = own_info.capabilities if capabilities is None else capabilities
        meta[CLIENT_KEY] = own_info.implementation
    return meta
