"""Additional names for the session context, for tools written for other hosts. None by default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from holdfast.model import codes
from holdfast.model.context import CONTEXT_FIELDS, META_KEY, SessionContext, context_env
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.normal_form import fold_key
from holdfast.model.settings_section import SettingsSection

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_STANDARD_KEYS = {"progressToken", "traceparent", "tracestate", "baggage"}
_MCP_PREFIXES = {"mcp", "modelcontextprotocol"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ContextAliases(SettingsSection):
    """Additional names for the context. A key such as `a.b` stands for both `_meta["a"]["b"]` and `_meta["a.b"]`."""

    env_prefixes: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Additional prefixes for the context's variables, for tools written for another host. With"
            " `OTHERHOST`, servers also get `OTHERHOST_SESSION_ID`, `OTHERHOST_WORKSPACE_ID` and so on."
        },
    )
    session_variables: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Additional variables for the session's id, such as `AGENT_SESSION_ID`."},
    )
    workspace_keys: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "Additional `_meta` keys for the workspace. `otherhost.workspace` is read from and written to both"
            ' `_meta["otherhost"]["workspace"]` and `_meta["otherhost.workspace"]`.'
        },
    )
    session_keys: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Additional `_meta` keys for the session's id, such as `agent-session-id`."},
    )

    def __post_init__(self) -> None:
        for prefix in self.env_prefixes:
            _check_variable(f"{prefix}_SESSION_ID", prefix)
        for name in self.session_variables:
            _check_variable(name, name)
        for key in (*self.workspace_keys, *self.session_keys):
            _check_key(key)

    @property
    def variables(self) -> frozenset[str]:
        """Every variable that the aliases use. Only the host may set them."""
        fields = (f"{prefix}_{field.upper()}" for prefix in self.env_prefixes for field in CONTEXT_FIELDS)
        return frozenset((*fields, *self.session_variables))

    @property
    def folded_keys(self) -> frozenset[str]:
        """Every `_meta` key that the aliases use, as `fold_key` returns it. Only the host sets them in what servers get."""
        keys = (*self.workspace_keys, *self.session_keys)
        return frozenset(fold_key(name) for name in (*keys, *(_path(key)[0] for key in keys)))

    def env(self, context: SessionContext) -> dict[str, str]:
        """The context as environment variables, under the aliases."""
        values: dict[str, str] = {}
        for prefix in self.env_prefixes:
            values |= context_env(context, prefix)
        for name in self.session_variables:
            values[name] = str(context.session_id)
        return values

    def meta(self, context: SessionContext, folder: str = "") -> JsonObject:
        """The context as entries of `_meta`, under the aliases.

        `folder` is the workspace's folder: local tools for other hosts expect a path. Remote servers get the workspace's
        slug, never a local path.
        """
        values: JsonObject = {}
        for key in self.session_keys:
            _set(values, key, str(context.session_id))
        workspace = folder if folder and context.workspace_id else context.workspace_id
        if workspace:
            for key in self.workspace_keys:
                _set(values, key, workspace)
        return values

    def workspace_in(self, meta: Mapping[str, object]) -> str:
        """The workspace that a client gives in `_meta`, under Holdfast's own key or an alias; empty if there is none.

        The client may send any value. `Registry.find` looks up the workspace that it names.
        """
        own_fields = _as_mapping(meta.get(META_KEY))
        own_values = (own_fields.get("workspace_id"), own_fields.get("workspace"))
        aliased = (value for key in self.workspace_keys for value in _lookup(meta, key))
        return next((text for value in (*own_values, *aliased) if (text := _as_text(value))), "")


NO_ALIASES = ContextAliases()


def _set(meta: JsonObject, key: str, value: str) -> None:
    """Set a flat key and, for a dotted key, its nested path."""
    meta[key] = value
    *parents, last = _path(key)
    if not parents:
        return
    inner: JsonObject = meta
    for name in parents:
        below: Json = inner.setdefault(name, {})
        if not isinstance(below, dict):  # another alias has set a value there
            return
        inner = below
    inner.setdefault(last, value)


def _lookup(meta: Mapping[str, object], key: str) -> tuple[object, ...]:
    """The values at the nested path of a key and at the flat key."""
    *parents, last = _path(key)
    inner = meta
    for name in parents:
        inner = _as_mapping(inner.get(name))
    return (inner.get(last), meta.get(key))


def _path(key: str) -> list[str]:
    """The names on the nested path of a key. A key with a prefix, such as `example.org/key`, has no nested path."""
    return [key] if "/" in key else key.split(".")


def _as_mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _as_text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _check_variable(name: str, alias: str) -> None:
    # Imported here, because most hosts have no aliases.
    from holdfast.model.reserved_variables import reserved_variable_reason

    if not _VARIABLE.fullmatch(name):
        raise HoldfastError(
            codes.BAD_SETTINGS,
            f"The alias {alias[:80]!r} does not make a valid variable name. Use letters, digits and underscores.",
        )
    if why := reserved_variable_reason(name):
        raise HoldfastError(codes.BAD_SETTINGS, f"{name} cannot be an alias: {why}. Choose another name.")


def _check_key(key: str) -> None:
    prefix, slash, _ = key.partition("/")
    labels = prefix.split(".") if slash else []
    if not _KEY.fullmatch(key) or ".." in key:
        raise HoldfastError(
            codes.BAD_SETTINGS,
            f"The alias {key[:80]!r} is not a valid `_meta` key. Use letters, digits, dots, hyphens and underscores.",
        )
    # MCP reserves the prefixes whose second label is one of `_MCP_PREFIXES`, such as `api.mcp.io/`.
    if key in _STANDARD_KEYS or _MCP_PREFIXES & set(labels[1:2]) or labels[:2] == ["dev", "holdfast"]:
        raise HoldfastError(
            codes.BAD_SETTINGS, f"{key!r} cannot be an alias: the key is reserved. Choose another key."
        )
