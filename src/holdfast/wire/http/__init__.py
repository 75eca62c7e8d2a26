"""MCP servers over HTTP: an ASGI application for both eras of the protocol."""

from holdfast.wire.http.allowed_hosts import LOOPBACK, AllowedHosts
from holdfast.wire.http.app import HttpApp, HttpService
from holdfast.wire.http.limits import HttpLimits

__all__ = ["LOOPBACK", "AllowedHosts", "HttpApp", "HttpLimits", "HttpService"]
