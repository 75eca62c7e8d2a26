"""The error for a name that no server has."""

from difflib import get_close_matches

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.visible_text import to_line
from holdfast.resolve.load import LoadedEntries

_MAX_LISTED_NAMES = 20


def unknown_server(name: str, loaded: LoadedEntries, resolution: Resolution) -> HoldfastError:
    """The error for a name that none of these servers has.

    It suggests a similar name, or lists the names. It also mentions files that could not be read: the server may be in one.
    """
    broken = describe_broken_files(resolution)
    names = sorted(server_names(loaded, resolution) - broken.keys())
    if close := get_close_matches(name[:80], names, n=1):
        suggestion = f"Did you mean {close[0]!r}?"
    elif names:
        more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
        suggestion = f"The servers here are: {', '.join(map(repr, names[:_MAX_LISTED_NAMES]))}{more}."
    else:
        suggestion = "There are no servers here."
    return HoldfastError(
        codes.UNKNOWN_SERVER,
        " ".join((f"There is no server {name[:80]!r} here. {suggestion}", *broken.values())),
        hint="`holdfast servers list` lists the servers of this folder.",
    )


def describe_broken_files(resolution: Resolution) -> dict[str, str]:
    """For each list of servers that could not be read: its path, and a sentence that says why."""
    return {
        refusal.server: f"{to_line(refusal.server)} was not read: {to_line(refusal.reason)}"
        for refusal in resolution.refusals
        if refusal.stage is Stage.LOAD and refusal.server.startswith("/")
    }


def server_names(loaded: LoadedEntries, resolution: Resolution) -> set[str]:
    """The names of the servers that a session would get, and of those that would be refused."""
    return {
        *(entry.name for entry in loaded.entries),
        *(spec.name for spec in resolution.servers),
        *(refusal.server for refusal in resolution.refusals),
    }
