"""Sessions for MCP: servers kept for a whole run, and tools that know who is calling."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.host.host import Host
    from holdfast.host.open_options import OpenOptions
    from holdfast.model.errors import HoldfastError
    from holdfast.model.trust import Trust

__version__ = "0.1.0.dev0"
__all__ = ["HoldfastError", "Host", "OpenOptions", "Trust", "__version__"]

_MODULES = {
    "Host": "holdfast.host.host",
    "HoldfastError": "holdfast.model.errors",
    "OpenOptions": "holdfast.host.open_options",
    "Trust": "holdfast.model.trust",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `holdfast --help` needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
