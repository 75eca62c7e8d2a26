"""In the modern era the headers repeat what the body says: whoever routes by them must not be misled."""

import base64
import binascii
import re
from collections.abc import Callable

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.wire.frame import Request
from holdfast.wire.http.headers import Headers
from holdfast.wire.mcp.eras import CAPABILITIES_KEY, VERSION_KEY
from holdfast.wire.mcp.mirrors import Mirrors

_NAMED = frozenset({"tools/call", "prompts/get", "resources/read"})
_BASE64 = re.compile(r"=\?base64\?(?P<text>.*)\?=")
_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.0{1,20})?")


def check_agreement(request: Request, meta: JsonObject, headers: Headers) -> None:
    """Raise unless the request's envelope is whole, and its version, method and name stand in the headers too."""
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise HoldfastError(codes.BAD_ARGUMENT, f"params._meta lacks {' and '.join(map(repr, missing))}.")
    _check("MCP-Protocol-Version", headers, meta[VERSION_KEY])
    _check("Mcp-Method", headers, request.method)
    if request.method in _NAMED:
        params = _decode_params(request.params)
        named = params.uri if request.method == "resources/read" else params.name
        if named is not None:
            _check("Mcp-Name", headers, named)


def check_mirrors(request: Request, mirrors_of: Callable[[str], Mirrors], headers: Headers) -> None:
    """Raise unless each mirrored argument and its `Mcp-Param-…` header are both absent, or both there and equal."""
    if request.method != "tools/call":
        return
    params = _decode_params(request.params)
    if not isinstance(params.name, str):
        return
    arguments = params.arguments
    for mirror in mirrors_of(params.name):
        name = f"Mcp-Param-{mirror.header}"
        said, value = headers.get(name.lower()), _at(arguments, mirror.path)
        if said is None and value is None:
            continue
        text = _text(value)
        if said is None or text is None or not _same(_decoded(said), text, number=mirror.number):
            raise _mismatch(name)


def _check(name: str, headers: Headers, value: Json) -> None:
    said = headers.get(name.lower())
    if said is None or _decoded(said) != value:
        raise _mismatch(name)


def _mismatch(name: str) -> HoldfastError:
    return HoldfastError(
        codes.HEADER_MISMATCH, f"The header {name} is missing, or does not say what the body says."
    )


def _decoded(value: str) -> str | None:
    """A header's value; one wrapped in `=?base64?…?=` is unwrapped, and None when it cannot be."""
    wrapped = _BASE64.fullmatch(value)
    if wrapped is None:
        return value
    try:
        plain = base64.b64decode(wrapped["text"], validate=True)
        # Other spellings of the same bytes would let two readers disagree.
        return plain.decode() if base64.b64encode(plain).decode() == wrapped["text"] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class _Params(msgspec.Struct):
    name: Json = None
    uri: Json = None
    arguments: Json = None


_decode_params = msgspec.json.Decoder(_Params).decode


def _at(arguments: Json, path: tuple[str, ...]) -> Json:
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(key)
    return arguments


def _text(value: Json) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return None


def _same(said: str | None, text: str, *, number: bool) -> bool:
    if said is not None and number and _DECIMAL.fullmatch(said) and _DECIMAL.fullmatch(text):
        return int(said.partition(".")[0]) == int(text.partition(".")[0])
    return said == text
