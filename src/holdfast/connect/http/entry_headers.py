"""Which headers of a remote server's entry are sent. Those that Holdfast sends itself are dropped."""

from collections.abc import Mapping

from holdfast.model.context import CONTEXT_HEADER

_RESERVED_HEADERS = {
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    CONTEXT_HEADER.lower(),
}


def entry_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an entry, in lower case, without the reserved ones."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() not in _RESERVED_HEADERS and not name.lower().startswith(("mcp-", "proxy-"))
    }
