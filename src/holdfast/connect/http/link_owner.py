"""The owner of the work that the current task does for a remote link: a session, or a server that sessions share."""

from contextvars import ContextVar

link_owner: ContextVar[str] = ContextVar("holdfast_link_owner", default="")
"""Name look-ups and the parsing of long messages are limited per owner. A `Pool` sets it for each request."""
