"""A message to a server, with the headers that repeat parts of it."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.connect.http.param_headers import ParamHeaders
from holdfast.model.context import META_KEY, SessionContext, parse_context
from holdfast.model.json import Json
from holdfast.wire.frame import Id, Raw
from holdfast.wire.mcp.eras import VERSION_KEY

CANCELLED = "notifications/cancelled"
VERSION = "MCP-Protocol-Version"
_NAME_FIELDS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN_TEXT = re.compile(r"(?!=\?base64\?.*\?=$)([!-~]([ -~]*[!-~])?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message: the body as it is sent, and its headers."""

    body: bytes = field(repr=False)
    id: Id | None = None
    method: str = ""
    is_modern: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cancels: Id | None = None
    """The request that this one cancels."""
    context: SessionContext | None = None
    """The session that sends it, if the message says so (a server shared by sessions)."""

    @property
    def is_request(self) -> bool:
        return self.id is not None and bool(self.method)


def read_outgoing(line: bytes, param_headers: ParamHeaders) -> OutgoingMessage:
    """Read a message of ours. In the modern era its headers repeat the version, the method and the name."""
    message = _decode(line)
    params = message.params
    version = params.meta.version
    headers: dict[str, str] = {}
    if version and message.method is not None:
        headers = {VERSION: version, "Mcp-Method": message.method}
        name = {"name": params.name, "uri": params.uri}.get(_NAME_FIELDS.get(message.method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
            if message.method == "tools/call":
                headers |= {
                    key: header_value(value)
                    for key, value in param_headers.headers(name, params.arguments).items()
                }
    return OutgoingMessage(
        body=line.rstrip(b"\n"),
        id=message.id,
        method=message.method or "",
        is_modern=bool(version),
        headers=headers,
        cancels=params.request_id if message.method == CANCELLED else None,
        context=parse_context(params.meta.session) if params.meta.session else None,
    )


def header_value(text: str) -> str:
    """A text as a header's value: unchanged if a header can hold it, otherwise marked base64."""
    if _PLAIN_TEXT.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


class _Meta(msgspec.Struct):
    version: str = msgspec.field(default="", name=VERSION_KEY)
    session: dict[str, Json] | None = msgspec.field(default=None, name=META_KEY)


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
