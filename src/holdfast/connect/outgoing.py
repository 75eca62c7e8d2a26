"""A message on its way out, as far as HTTP has to know it."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.connect.mirrored import Mirrored
from holdfast.model.carriers import META_KEY, read_context
from holdfast.model.context import SessionContext
from holdfast.model.json import Json
from holdfast.wire.frame import Id, Raw
from holdfast.wire.mcp.eras import VERSION_KEY

TAKEN_BACK = "notifications/cancelled"
VERSION = "MCP-Protocol-Version"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=$)([!-~]([ -~]*[!-~])?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message: its body as it is sent, and what its headers must repeat."""

    body: bytes = field(repr=False)
    id: Id | None = None
    method: str = ""
    modern: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    takes_back: Id | None = None
    """The request that this one cancels."""
    context: SessionContext | None = None
    """On whose behalf it goes, where the message itself says so (a server shared by sessions)."""

    @property
    def is_request(self) -> bool:
        """Whether an answer is waited for."""
        return self.id is not None and bool(self.method)


def read_outgoing(line: bytes, mirrored: Mirrored) -> Outgoing:
    """Read a line of ours; a message of the modern era names its version, and its headers repeat what it says."""
    message = _decode(line)
    params = message.params
    version = params.meta.version
    headers: dict[str, str] = {}
    if version and message.method is not None:
        headers = {VERSION: version, "Mcp-Method": message.method}
        name = {"name": params.name, "uri": params.uri}.get(_NAMED_BY.get(message.method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
            if message.method == "tools/call":
                headers |= {
                    key: header_value(value)
                    for key, value in mirrored.headers(name, params.arguments).items()
                }
    return Outgoing(
        body=line.rstrip(b"\n"),
        id=message.id,
        method=message.method or "",
        modern=bool(version),
        headers=headers,
        takes_back=params.request_id if message.method == TAKEN_BACK else None,
        context=read_context(params.meta.session) if params.meta.session else None,
    )


def header_value(text: str) -> str:
    """A text as a header's value: as it is where that survives the way, else in base64, marked as such."""
    if _PLAIN.fullmatch(text):
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
