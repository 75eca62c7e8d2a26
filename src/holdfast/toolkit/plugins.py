"""Load plugins: toolboxes from other packages, found by entry point. Only plugins that are named (`--plugin`, `box.plug_in`) are loaded."""

import re
from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdfast.toolkit.toolbox import Toolbox

ENTRY_POINT_GROUP = "holdfast.toolkit"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def load_plugin(name: str) -> "Toolbox":
    """Load the toolbox of a plugin. Its entry point refers to a `Toolbox`, or to a function that returns one."""
    from importlib.metadata import entry_points

    from holdfast.toolkit.toolbox import Toolbox

    if not _NAME.fullmatch(name):
        raise HoldfastError(
            codes.BAD_PLUGIN,
            f"{name[:80]!r} is not a valid plugin name: use letters, digits, '_', '-' and '.'.",
        )
    installed = entry_points(group=ENTRY_POINT_GROUP)
    # By value and package, so that an entry point that is listed twice counts once.
    found = {(entry.value, _package_name(entry)): entry for entry in installed if entry.name == name}
    if len(found) != 1:
        known = (
            ", ".join(sorted({entry.name for entry in installed if _NAME.fullmatch(entry.name)})) or "none"
        )
        packages = " and ".join(sorted(repr(package) for _, package in found))
        problem = (
            f"is provided by several packages: {packages}"
            if found
            else f"is not installed. Installed: {known}"
        )
        raise HoldfastError(codes.BAD_PLUGIN, f"The plugin {name!r} {problem}.")
    (entry,) = found.values()
    try:
        loaded: object = entry.load()
        box: object = loaded() if callable(loaded) else loaded
    except (Exception, SystemExit) as error:
        reason = "".join(filter(str.isprintable, f"{type(error).__name__}: {error}"))[:500]
        raise HoldfastError(codes.BAD_PLUGIN, f"The plugin {name!r} could not be loaded: {reason}") from error
    if not isinstance(box, Toolbox):
        raise HoldfastError(
            codes.BAD_PLUGIN, f"The plugin {name!r} is a {type(box).__name__}, not a Toolbox."
        )
    return box


def _package_name(entry: "EntryPoint") -> str:
    """The name of the package that an entry point belongs to."""
    return entry.dist.name[:80] if entry.dist is not None else ""
