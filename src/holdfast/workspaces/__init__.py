"""The registry of workspaces: registered folders, and what the sessions in each of them may use."""

from holdfast.workspaces.registry import WORKSPACES_FOLDER, InvalidWorkspace, Registry

__all__ = ["WORKSPACES_FOLDER", "InvalidWorkspace", "Registry"]
