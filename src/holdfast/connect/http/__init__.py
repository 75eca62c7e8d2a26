"""Connections to remote servers: streamable HTTP, SSE, logins, proxies, and the check of addresses."""
