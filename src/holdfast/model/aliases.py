"""The names that tools written for other hosts know the context by: configured, none by default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from holdfast.model import codes
from holdfast.model.carriers import FIELDS, META_KEY, context_env
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.variables import why_reserved

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_TAKEN = {"progressToken", "traceparent", "tracestate", "baggage"}
_PROTOCOL = {"mcp", "modelcontextprotocol"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """Further names for the context. A dotted `_meta` key stands for a path and for the flat key alike."""

    env_prefixes: tuple[str, ...] = ()
    """`PARACHUTE` for `PARACHUTE_SESSION_ID`, `PARACHUTE_WORKSPACE_ID`, …"""
    session_variables: tuple[str, ...] = ()
    """`AGENT_SESSION_ID`"""
    workspace_keys: tuple[str, ...] = ()
    """`orbit.workspace` for `_meta.orbit.workspace` and `_meta["orbit.workspace"]`"""
    session_keys: tuple[str, ...] = ()
    """`agent-session-id`"""

    def __post_init__(self) -> None:
        for prefix in self.env_prefixes:
            _check_variable(f"{prefix}_SESSION_ID", prefix)
        for name in self.session_variables:
            _check_variable(name, name)
        for key in (*self.workspace_keys, *self.session_keys):
            _check_key(key)

    @property
    def variables(self) -> frozenset[str]:
        """Every variable these names take: the host alone may set them."""
        fields = (f"{prefix}_{field.upper()}" for prefix in self.env_prefixes for field in FIELDS)
        return frozenset((*fields, *self.session_variables))

    @property
    def folded_keys(self) -> frozenset[str]:
        """Every entry of `_meta` these names take, without regard to case: the host alone may set them."""
        named = (*self.workspace_keys, *self.session_keys)
        return frozenset(name.casefold() for name in (*named, *(_path(key)[0] for key in named)))

    def env(self, context: SessionContext) -> dict[str, str]:
        """The context as variables, under the other names."""
        said: dict[str, str] = {}
        for prefix in self.env_prefixes:
            said |= context_env(context, prefix)
        for name in self.session_variables:
            said[name] = str(context.session_id)
        return said

    def meta(self, context: SessionContext, folder: str = "") -> JsonObject:
        """The context as entries of `_meta`, under the other names.

        `folder` is the workspace's path, for a local server: tools written for others expect a path. A remote
        server learns no path; it gets the workspace's id.
        """
        said: JsonObject = {}
        for key in self.session_keys:
            _put(said, key, str(context.session_id))
        workspace = folder if folder and context.workspace_id else context.workspace_id
        if workspace:
            for key in self.workspace_keys:
                _put(said, key, workspace)
        return said

    def announced(self, meta: Mapping[str, object]) -> str:
        """The workspace that a client names in `_meta`, under our own key or another; empty when it names none.

        It is an address, not an authority: `Registry.find` says which workspace it means, if any.
        """
        own = _table(meta.get(META_KEY))
        named = (own.get("workspace_id"), own.get("workspace"))
        others = (value for key in self.workspace_keys for value in _found(meta, key))
        return next((text for value in (*named, *others) if (text := _text(value))), "")


NO_ALIASES = Aliases()


def _put(meta: JsonObject, key: str, value: str) -> None:
    """Set a flat key and, for a dotted one, the path it stands for."""
    meta[key] = value
    *way, last = _path(key)
    if not way:
        return
    inner: JsonObject = meta
    for name in way:
        below: Json = inner.setdefault(name, {})
        if not isinstance(below, dict):  # another alias has a value where this one has a branch
            return
        inner = below
    inner.setdefault(last, value)


def _found(meta: Mapping[str, object], key: str) -> tuple[object, ...]:
    """What stands under the path of a key, then under the flat key."""
    *way, last = _path(key)
    inner = meta
    for name in way:
        inner = _table(inner.get(name))
    return (inner.get(last), meta.get(key))


def _path(key: str) -> list[str]:
    return [key] if "/" in key else key.split(".")


def _table(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _check_variable(name: str, written: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise HoldfastError(codes.BAD_SETTINGS, f"The alias {written[:80]!r} makes no name of a variable.")
    if why := why_reserved(name):
        raise HoldfastError(codes.BAD_SETTINGS, f"{name} cannot be an alias: {why}. Choose another name.")


def _check_key(key: str) -> None:
    prefix, slash, _ = key.partition("/")
    labels = prefix.split(".") if slash else []
    if not _KEY.fullmatch(key) or ".." in key:
        raise HoldfastError(codes.BAD_SETTINGS, f"The alias {key[:80]!r} is no key of `_meta`.")
    if key in _TAKEN or _PROTOCOL & set(labels[1:2]) or labels[:2] == ["dev", "holdfast"]:
        raise HoldfastError(codes.BAD_SETTINGS, f"{key!r} cannot be an alias: the key has a meaning already.")
