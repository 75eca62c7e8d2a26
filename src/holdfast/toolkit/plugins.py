"""Tools of other packages: found by entry point, loaded only when named, and whole or not at all."""

from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.toolkit.toolbox import Toolbox

GROUP = "holdfast.toolkit"


def load_plugin(name: str) -> "Toolbox":
    """The toolbox of a plugin: what its entry point names, or what that gives when it is called."""
    from importlib.metadata import entry_points

    from holdfast.toolkit.toolbox import Toolbox

    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if len(found) != 1:
        known = ", ".join(sorted({entry.name for entry in entry_points(group=GROUP)})) or "none"
        problem = "is installed twice" if found else f"is not installed; there are: {known}"
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
