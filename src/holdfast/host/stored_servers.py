"""The names of the servers that an application gave to a session are stored with it, so that a later refusal can name them."""

from holdfast.host.open_options import OpenOptions
from holdfast.model.json import Json, JsonObject
from holdfast.model.resolution import Refusal, Stage

_NAMES, _ONLY_THESE = "app_servers", "only_these"


def servers_to_store(options: OpenOptions, earlier: JsonObject | None = None) -> JsonObject:
    """The names of the application's servers, and whether the session has no others, to be stored with the session.

    `earlier` are the settings that are stored now. The names in them are kept.
    """
    stored: JsonObject = {}
    names: list[Json] = [*dict.fromkeys((*_names(earlier or {}), *options.app_servers.entries))]
    if names:
        stored[_NAMES] = names
    if options.only_these:
        stored[_ONLY_THESE] = True
    return stored


def missing_servers(settings: JsonObject, options: OpenOptions) -> tuple[str, ...]:
    """The stored names whose servers were not given again."""
    return tuple(name for name in _names(settings) if name not in options.app_servers.entries)


def had_only_own_servers(settings: JsonObject) -> bool:
    """Whether the session was opened with the servers of its application, and no others."""
    return settings.get(_ONLY_THESE) is True


def not_given_again(name: str) -> Refusal:
    """The refusal of a server that the application has to give again."""
    reason = (
        "The application that opened the session gave it this server, which is not stored, and it was not given again. "
        f"In Python, give it again: host.reopen(session_id, servers={{{name!r}: …}})."
    )
    return Refusal(server=name, stage=Stage.LOAD, reason=reason)


def _names(settings: JsonObject) -> tuple[str, ...]:
    names = settings.get(_NAMES, [])
    return tuple(map(str, names)) if isinstance(names, list) else ()
