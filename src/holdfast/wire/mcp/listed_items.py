"""Clean the prompts, resources and templates that a server lists, like its tools, before a client or a model gets them."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.visible_text import is_visible
from holdfast.wire.mcp.definition_text import MAX_TEXT_LENGTH, clean_text
from holdfast.wire.strict_json import DECODE_ERRORS, make_decoder

_decode_members = make_decoder(dict[str, Raw])
_decode_items = make_decoder(list[Raw])
_decode_text = make_decoder(str)
_MAX_NAMES = 5
_MAX_NAME = 100  # characters


class _Definition(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """A definition with a title and a description.

    Decoding drops all members that MCP does not define, because clients that ignore the case of names would read a member such as `Name`,
    which nothing has cleaned.
    """

    title: str | None = None
    description: str | None = None


class _Argument(_Definition, kw_only=True):
    name: str
    required: bool | None = None


class _Annotations(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    audience: list[str] | None = None
    priority: Raw | UnsetType = UNSET
    last_modified: str | None = None


class _Item(_Definition, kw_only=True):
    icons: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Prompt(_Item, kw_only=True):
    name: str
    arguments: list[_Argument] | None = None


class _ResourceOrTemplate(_Item, kw_only=True):
    name: str | None = None
    mime_type: str | None = None
    annotations: _Annotations | None = None


class _Resource(_ResourceOrTemplate, kw_only=True):
    uri: str
    size: Raw | UnsetType = UNSET


class _Template(_ResourceOrTemplate, kw_only=True):
    uri_template: str


_DECODERS = {
    "prompts": make_decoder(_Prompt),
    "resources": make_decoder(_Resource),
    "resourceTemplates": make_decoder(_Template),
}


def clean_items(items: Raw, key: str) -> list[Raw]:
    """Clean the texts of the items that a page lists under `key`. Invalid items are left out.

    The names of prompts and of their arguments, and URIs, are not cleaned, because clients must send them to the server unchanged. An
    item is left out if such a name or URI has invisible characters or is too long. Raise one of `DECODE_ERRORS` if `items` is not a list.
    """
    decode = _DECODERS[key]
    return [clean for raw in _decode_items(items) if (clean := _clean(raw, decode)) is not None]


def describe_left_out(items: Raw, key: str) -> str:
    """For the log: the names of the first items that `clean_items` leaves out, on one line; empty if it keeps all."""
    decode = _DECODERS[key]
    names: list[str] = []
    for raw in _decode_items(items):
        if _clean(raw, decode) is None:
            names.append(_name_of(raw))
            if len(names) == _MAX_NAMES:
                break
    return ", ".join(names)


def clean_page(page: Raw, key: str) -> Raw:
    """A page of a list, with cleaned items."""
    try:
        members = _decode_members(page)
        items = clean_items(members.get(key, Raw(b"[]")), key)
    except DECODE_ERRORS:
        raise HoldfastError(codes.BAD_ANSWER, f"The server sent an invalid list of {key}.") from None
    return Raw(msgspec.json.encode({**members, key: items}))


def _clean(raw: Raw, decode: Any) -> Raw | None:
    try:
        item = decode(raw)
    except DECODE_ERRORS:
        return None
    if not all(map(_is_usable, _identifiers(item))):
        return None
    _clean_texts(item)
    if isinstance(item, _Prompt):
        for argument in item.arguments or ():
            _clean_texts(argument)
    else:
        _clean_resource(item)
    return Raw(msgspec.json.encode(item))


def _name_of(raw: Raw) -> str:
    try:
        members = _decode_members(raw)
        name = next(members[key] for key in ("name", "uri", "uriTemplate") if key in members)
        return ascii(_decode_text(name)[:_MAX_NAME])
    except (*DECODE_ERRORS, StopIteration):
        return "one without a name"


def _identifiers(item: _Prompt | _Resource | _Template) -> Iterable[str]:
    """The names or URIs that a client must send to the server unchanged."""
    match item:
        case _Prompt():
            return (item.name, *(argument.name for argument in item.arguments or ()))
        case _Resource():
            return (item.uri,)
        case _Template():
            return (item.uri_template,)


def _is_usable(identifier: str) -> bool:
    return 0 < len(identifier) <= MAX_TEXT_LENGTH and is_visible(identifier)


def _clean_texts(item: _Definition) -> None:
    item.title = _clean_text(item.title)
    item.description = _clean_text(item.description)


def _clean_resource(item: _Resource | _Template) -> None:
    item.name = _clean_text(item.name)
    item.mime_type = _clean_text(item.mime_type)
    if isinstance(item, _Resource):
        item.size = _number(item.size)
    if (annotations := item.annotations) is not None:
        annotations.audience = annotations.audience and [
            clean_text(role, "", set()) for role in annotations.audience
        ]
        annotations.priority = _number(annotations.priority)
        annotations.last_modified = _clean_text(annotations.last_modified)


def _clean_text(text: str | None) -> str | None:
    return None if text is None else clean_text(text, "", set())  # without a report of what was changed


def _number(raw: Raw | UnsetType) -> Raw | UnsetType:
    """The value if it is a number, else UNSET. It is not decoded, because very long numbers are slow to decode."""
    return raw if not isinstance(raw, UnsetType) and bytes(raw)[:1].strip(b"-0123456789") == b"" else UNSET
