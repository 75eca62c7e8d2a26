"""MCP over HTTP, the server's side: an ASGI application for both eras, around anything that answers MCP."""

from holdfast.wire.http.app import HttpApp, HttpService
from holdfast.wire.http.gate import LOOPBACK, Gate
from holdfast.wire.http.terms import Terms

__all__ = ["LOOPBACK", "Gate", "HttpApp", "HttpService", "Terms"]
