"""The error for a name that no server has."""

from difflib import get_close_matches

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.visible_text import to_line
from holdfast.resolve.load import LoadedEntries

_MAX_NAMED = 20


def unknown_server(name: str, loaded: LoadedEntries, resolution: Resolution) -> HoldfastError:
    """The error for a name that none of these servers has. It suggests a similar name, or lists the names, and names files that could not be read."""
    broken = describe_broken_files(resolution)
    names = sorted(server_names(loaded, resolution) - broken.keys())
    if close := get_close_matches(name[:80], names, n=1):
        suggestion = f"Did you mean {close[0]!r}?"
    elif names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        suggestion = f"The servers here are: {', '.join(map(repr, names[:_MAX_NAMED]))}{more}."
    else:
        suggestion = "There are no servers here."
    return HoldfastError(
        codes.UNKNOWN_SERVER,
        " ".join((f"There is no server {name[:80]!r} here. {suggestion}", *broken.values())),
        hint="`holdfast servers list` lists the servers of this folder.",
    )


def describe_broken_files(resolution: Resolution) -> dict[str, str]:
    """The lists of servers that could not be read, by path, each with a sentence that says why: a server may be configured there."""
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
