"""A message to a server, and the HTTP headers that repeat parts of it."""

import base64
import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from holdfast.connect.http.param_headers import ParamHeaders
from holdfast.model.context import META_KEY, SessionContext, parse_context
from holdfast.model.json import Json
from holdfast.wire.mcp.eras import VERSION_KEY
from holdfast.wire.messages import Id, Raw
from holdfast.wire.strict_json import make_decoder

CANCELLED = "notifications/cancelled"
VERSION_HEADER = "MCP-Protocol-Version"
_NAME_FIELDS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Visible ASCII characters, with spaces between them, but not a text that looks encoded (`=?base64?…?=`).
_PLAIN_TEXT = re.compile(r"(?!=\?base64\?.*\?=$)([!-~]([ -~]*[!-~])?)?")


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message: the body as it is sent, and its headers."""

    body: bytes
    id: Id | None = None
    method: str = ""
    is_modern: bool = False
    headers: Mapping[str, str] = {}
    cancels: Id | None = None
    """The id of the request that this message cancels."""
    context: SessionContext | None = None
    """The context in `_meta`; None if there is none."""

    @property
    def is_request(self) -> bool:
        return self.id is not None and bool(self.method)


def parse_outgoing(line: bytes, param_headers: ParamHeaders) -> OutgoingMessage:
    """Parse a line that the peer wrote. In the modern era, headers repeat the version, method, name and some arguments."""
    message = _decode(line)
    params = message.params
    version = params.meta.version
    headers: dict[str, str] = {}
    if version and message.method is not None:
        headers = {VERSION_HEADER: version, "Mcp-Method": message.method}
        name = {"name": params.name, "uri": params.uri}.get(_NAME_FIELDS.get(message.method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = encode_header_value(name)
            if message.method == "tools/call":
                headers |= {
                    key: encode_header_value(value)
                    for key, value in param_headers.headers(name, params.arguments).items()
                }
    return OutgoingMessage(
        body=line.rstrip(b"\n"),
        id=message.id,
        method=message.method or "",
        is_modern=bool(version),
        headers=headers,
        cancels=params.request_id if message.method == CANCELLED else None,
        context=_parse_session_context(bytes(params.meta.session)) if params.meta.session else None,
    )


def encode_header_value(text: str) -> str:
    """Encode a string as the value of a header: unchanged if possible, else as `=?base64?…?=`."""
    if _PLAIN_TEXT.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


class _Meta(msgspec.Struct):
    version: str = msgspec.field(default="", name=VERSION_KEY)
    session: Raw = msgspec.field(default=Raw(), name=META_KEY)


class _Params(msgspec.Struct):
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")
    name: Json = None
    uri: Json = None
    arguments: Raw = Raw()
    request_id: Id | None = msgspec.field(default=None, name="requestId")


class _Message(msgspec.Struct):
    id: Id | None = None
    method: str | None = None
    params: _Params = msgspec.field(default_factory=_Params)


_decode = msgspec.json.Decoder(_Message).decode
_decode_fields = make_decoder(dict[str, Json])


@lru_cache(maxsize=256)
def _parse_session_context(raw: bytes) -> SessionContext | None:
    """Cached, because all messages of a session have the same context."""
    return parse_context(_decode_fields(raw))
