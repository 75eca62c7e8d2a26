"""Sessions for MCP: servers kept for a whole run, and tools that know who is calling."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast import events
    from holdfast.agent.agent import Agent, Command, TurnContext
    from holdfast.connect.call import ToolResult
    from holdfast.connect.catalog import CatalogTool
    from holdfast.host.host import Host
    from holdfast.host.open_options import OpenOptions, SessionOptions
    from holdfast.host.server_config import ServerConfig, ServerConfigs
    from holdfast.model.context import SessionContext
    from holdfast.model.door import Door, DoorCapabilities, PermissionQuestion
    from holdfast.model.errors import HoldfastError
    from holdfast.model.json import JsonObject
    from holdfast.model.permission import Mode
    from holdfast.model.resolution import Refusal
    from holdfast.model.trust import Trust
    from holdfast.session.session import Session
    from holdfast.session.turns import TurnResult

__version__ = "0.1.0.dev0"
__all__ = [
    "Agent",
    "CatalogTool",
    "Command",
    "Door",
    "DoorCapabilities",
    "HoldfastError",
    "Host",
    "JsonObject",
    "Mode",
    "OpenOptions",
    "PermissionQuestion",
    "Refusal",
    "ServerConfig",
    "ServerConfigs",
    "Session",
    "SessionContext",
    "SessionOptions",
    "ToolResult",
    "Trust",
    "TurnContext",
    "TurnResult",
    "__version__",
    "events",
]

_MODULES = {
    "Agent": "holdfast.agent.agent",
    "CatalogTool": "holdfast.connect.catalog",
    "Command": "holdfast.agent.agent",
    "Door": "holdfast.model.door",
    "DoorCapabilities": "holdfast.model.door",
    "HoldfastError": "holdfast.model.errors",
    "Host": "holdfast.host.host",
    "JsonObject": "holdfast.model.json",
    "Mode": "holdfast.model.permission",
    "OpenOptions": "holdfast.host.open_options",
    "PermissionQuestion": "holdfast.model.door",
    "Refusal": "holdfast.model.resolution",
    "ServerConfig": "holdfast.host.server_config",
    "ServerConfigs": "holdfast.host.server_config",
    "Session": "holdfast.session.session",
    "SessionContext": "holdfast.model.context",
    "SessionOptions": "holdfast.host.open_options",
    "ToolResult": "holdfast.connect.call",
    "Trust": "holdfast.model.trust",
    "TurnContext": "holdfast.agent.agent",
    "TurnResult": "holdfast.session.turns",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `holdfast --help` needs none of them."""
    from importlib import import_module

    if name == "events":
        return import_module("holdfast.events")
    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
