"""Convert results and errors between the eras of the protocol, where the client's and the server's differ."""

from typing import Any

import msgspec

from holdfast.gateway.capabilities import GATEWAY
from holdfast.wire.mcp.eras import Era, OwnInfo
from holdfast.wire.mcp.server import add_modern_fields
from holdfast.wire.messages import PeerError, Raw
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

_RESOURCE_NOT_FOUND = -32002
_URL_ELICITATION_REQUIRED = -32042
_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603
_MODERN_MEMBERS = frozenset(("resulttype", "ttlms", "cachescope", "inputrequests", "requeststate"))
"""The members that only modern results have. In lower case, because some clients ignore the case of names."""
_INFO = OwnInfo(implementation=GATEWAY)
_decode_members = make_decoder(dict[str, Raw])


def convert_result(result: Any, method: str, *, server: Era, client: Era) -> Any:
    """Convert a server's result for a client of another era. If the eras are the same, it is not changed."""
    if server is client:
        return result
    try:
        members = _decode_members(result) if isinstance(result, Raw) else {**result}
    except DECODE_ERRORS:
        return modern_result(result, method) if client is Era.MODERN else result
    # This also removes questions in the result of a handshake-era server: they would reach a modern client unchecked.
    for name in [name for name in members if name.casefold() in _MODERN_MEMBERS]:
        del members[name]
    if client is Era.MODERN:
        return modern_result(members, method)
    structured = members.get("structuredContent")
    if structured is not None and not bytes(structured).lstrip().startswith(b"{"):
        del members["structuredContent"]  # the handshake era allows objects only; `content` has the same data
    return Raw(msgspec.json.encode(members))


def modern_result(result: Any, method: str) -> Any:
    """A result with the members that every modern result has."""
    return add_modern_fields(result, method, _INFO)


def convert_error(error: PeerError, *, server: Era, client: Era, uri: str = "") -> PeerError:
    """Convert a server's error for a client of another era. `uri` is the resource of the request, if it is about one."""
    if server is client or client is Era.HANDSHAKE:
        return error
    if error.rpc_code == _RESOURCE_NOT_FOUND:
        return PeerError(_INVALID_PARAMS, error.message, {"uri": uri} if uri else error.data)
    if error.rpc_code == _URL_ELICITATION_REQUIRED:
        return PeerError(_INTERNAL_ERROR, error.message, error.data)
    return error
