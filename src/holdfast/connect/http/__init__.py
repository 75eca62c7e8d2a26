"""Links to remote servers: streamable HTTP, SSE, logins, proxies, and which addresses may be connected to."""
