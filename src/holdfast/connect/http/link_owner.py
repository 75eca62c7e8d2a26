"""Whose work the current task does for a remote link: that of a session, or of a server that sessions share."""

from contextvars import ContextVar

link_owner: ContextVar[str] = ContextVar("holdfast_link_owner", default="")
"""Look-ups of names and the parsing of long messages are limited for each owner. Requests of a `Pool` set it."""
