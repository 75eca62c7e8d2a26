"""Plugins: toolboxes of other packages, found by their entry points. A plugin is loaded only if it is asked for."""

from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.toolkit.toolbox import Toolbox

ENTRY_POINT_GROUP = "holdfast.toolkit"


def load_plugin(name: str) -> "Toolbox":
    """Load the toolbox of a plugin. Its entry point refers to a `Toolbox`, or to a function that returns one."""
    from importlib.metadata import entry_points

    from holdfast.toolkit.toolbox import Toolbox

    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == name]
    if len(found) != 1:
        known = ", ".join(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})) or "none"
        problem = "is installed more than once" if found else f"is not installed. Installed: {known}"
        raise HoldfastError(codes.BAD_PLUGIN, f"The plugin {name[:80]!r} {problem}.")
    try:
        loaded: object = found[0].load()
        box: object = loaded() if callable(loaded) else loaded
    except Exception as error:
        raise HoldfastError(
            codes.BAD_PLUGIN, f"The plugin {name!r} could not be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(box, Toolbox):
        raise HoldfastError(
            codes.BAD_PLUGIN, f"The plugin {name!r} is a {type(box).__name__}, not a Toolbox."
        )
    return box
