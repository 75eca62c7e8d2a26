"""The registry of workspaces: which folders are registered, and what a session in one may use."""

from holdfast.workspaces.registry import Problem, Registry

__all__ = ["Problem", "Registry"]
