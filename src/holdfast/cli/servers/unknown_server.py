"""The error for a name that no server has."""

from collections.abc import Iterable
from difflib import get_close_matches

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution
from holdfast.resolve.load import LoadedEntries

_MAX_NAMED = 20


def unknown_server(name: str, known: Iterable[str]) -> HoldfastError:
    """The error for a name that none of these servers has. It suggests a similar name, or lists the names."""
    names = sorted(set(known))
    if close := get_close_matches(name[:80], names, n=1):
        suggestion = f"Did you mean {close[0]!r}?"
    elif names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        suggestion = f"The servers here are: {', '.join(map(repr, names[:_MAX_NAMED]))}{more}."
    else:
        suggestion = "There are no servers here."
    return HoldfastError(
        codes.UNKNOWN_SERVER,
        f"There is no server {name[:80]!r} here. {suggestion}",
        hint="`holdfast servers list` lists the servers of this folder.",
    )


def server_names(loaded: LoadedEntries, resolution: Resolution) -> set[str]:
    """The names of the servers that a session would get, and of those that would be refused."""
    return {
        *(entry.name for entry in loaded.entries),
        *(spec.name for spec in resolution.servers),
        *(refusal.server for refusal in resolution.refusals),
    }
