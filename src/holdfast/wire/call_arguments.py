"""The arguments of a call, as an application gives them: a mapping, a dataclass or a pydantic model."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import PurePath
from typing import Any, cast

import msgspec

from holdfast.model import codes
from holdfast.model.call_arguments import Arguments
from holdfast.model.errors import HoldfastError
from holdfast.model.json import is_all_finite
from holdfast.model.parse_text import bad_type

__all__ = ["Arguments", "encode_arguments", "tool_name_type_error"]


def encode_arguments(arguments: Arguments | None) -> bytes:
    """Encode arguments as the JSON text that is sent and hashed."""
    try:
        if arguments is None:
            plain: object = {}
        else:  # a dict is checked first, because the check for a mapping is slow
            plain = arguments if isinstance(arguments, dict) else _plain(arguments)
        encoded = _encode(plain)
        # msgspec encodes a NaN or an infinity as null.
        if encoded.find(b"null") >= 0 and not is_all_finite(
            msgspec.to_builtins(plain, enc_hook=_encode_value, str_keys=True)
        ):
            raise ValueError("they contain a NaN or an infinity")
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"The arguments cannot be encoded as JSON: {error}."
        ) from None
    if not encoded.startswith(b"{"):  # a pydantic RootModel can be encoded as a list
        raise _arguments_type_error(arguments)
    return encoded


def tool_name_type_error(name: object) -> HoldfastError:
    """The error for a tool name that is not a string."""
    return bad_type("name", 'the name of a tool as text, "server.tool"', name)


def _plain(arguments: object) -> object:
    if isinstance(arguments, Mapping):
        return dict(cast("Mapping[str, Any]", arguments))
    if is_dataclass(arguments) and not isinstance(arguments, type):
        return arguments
    if isinstance(arguments, type) or not hasattr(arguments, "model_dump"):
        raise _arguments_type_error(arguments)
    return _encode_value(arguments)


def _arguments_type_error(value: object) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT,
        "The arguments must be a dict, a dataclass or a pydantic model, "
        f"not a value of the type {type(value).__name__}.",
    )


def _encode_value(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    raise TypeError(f"a value of the type {type(value).__name__} is not supported")


_encode = msgspec.json.Encoder(enc_hook=_encode_value).encode
