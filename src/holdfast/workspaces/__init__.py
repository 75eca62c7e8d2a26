"""The registry of workspaces: registered folders, and what a session in each may use."""

from holdfast.workspaces.registry import InvalidWorkspace, Registry

__all__ = ["InvalidWorkspace", "Registry"]
