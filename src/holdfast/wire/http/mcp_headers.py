"""Check that the headers of a modern request agree with its body, because proxies route by the headers."""

import base64
import binascii
import re
from collections.abc import Callable

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.wire.http.request import Headers
from holdfast.wire.mcp.eras import CAPABILITIES_KEY, VERSION_KEY
from holdfast.wire.mcp.tools import ParamHeader
from holdfast.wire.messages import Request
from holdfast.wire.strict_json import make_decoder

_METHODS_WITH_NAME_HEADER = frozenset({"tools/call", "prompts/get", "resources/read"})
_BASE64 = re.compile(r"=\?base64\?(?P<text>.*)\?=")
# An integer, also written as `3.0`. Its length is limited because int() is slow for very long numbers.
_INTEGER = re.compile(r"-?[0-9]{1,40}(\.0{1,20})?")


def check_mcp_headers(request: Request, meta: JsonObject, headers: Headers) -> None:
    """Raise unless `_meta` is complete, and the headers repeat the version, the method and the name."""
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise HoldfastError(codes.BAD_ARGUMENT, f"params._meta must have {' and '.join(map(repr, missing))}.")
    _check_header("MCP-Protocol-Version", headers.get("mcp-protocol-version"), meta[VERSION_KEY])
    _check_header("Mcp-Method", headers.get("mcp-method"), request.method)
    if request.method in _METHODS_WITH_NAME_HEADER:
        params = _decode_target(request.params)
        target = params.uri if request.method == "resources/read" else params.name
        if target is not None:
            _check_header("Mcp-Name", headers.get("mcp-name"), target)


def check_param_headers(
    request: Request, param_headers_of: Callable[[str], tuple[ParamHeader, ...]], headers: Headers
) -> None:
    """Raise unless each argument that a header must repeat equals its `Mcp-Param-…` header, or both are absent."""
    if request.method != "tools/call":
        return
    params = _decode_params(request.params)
    if not isinstance(params.name, str):
        return
    arguments = params.arguments
    for param in param_headers_of(params.name):
        name = f"Mcp-Param-{param.header}"
        header, value = headers.get(name.lower()), _find_argument(arguments, param.path)
        if header is None and value is None:
            continue
        text = _format_argument(value)
        if (
            header is None
            or text is None
            or not _header_equals(_decode_header(header), text, is_number=param.is_number)
        ):
            raise _mismatch(name)


def _check_header(name: str, header: str | None, value: Json) -> None:
    if header is None or _decode_header(header) != value:
        raise _mismatch(name)


def _mismatch(name: str) -> HoldfastError:
    return HoldfastError(codes.HEADER_MISMATCH, f"The header {name} is missing, or does not match the body.")


def _decode_header(value: str) -> str | None:
    """A header's value, decoded if it has the form `=?base64?…?=`; None if it cannot be decoded."""
    encoded = _BASE64.fullmatch(value) if value.startswith("=?") else None
    if encoded is None:
        return value
    try:
        plain = base64.b64decode(encoded["text"], validate=True)
        # Accept only the canonical encoding: a proxy may compare the encoded text.
        return plain.decode() if base64.b64encode(plain).decode() == encoded["text"] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class _Target(msgspec.Struct):
    name: Json = None
    uri: Json = None


class _Params(msgspec.Struct):
    name: Json = None
    arguments: Json = None


_decode_target = make_decoder(_Target)
_decode_params = make_decoder(_Params)


def _find_argument(arguments: Json, path: tuple[str, ...]) -> Json:
    """The argument at this path; None if there is none."""
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(key)
    return arguments


def _format_argument(value: Json) -> str | None:
    """An argument as the text of a header; None if a header cannot contain it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return None


def _header_equals(header: str | None, text: str, *, is_number: bool) -> bool:
    if header is not None and is_number and _INTEGER.fullmatch(header) and _INTEGER.fullmatch(text):
        return int(header.partition(".")[0]) == int(text.partition(".")[0])
    return header == text
