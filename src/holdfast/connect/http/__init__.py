"""Links to remote servers: streamable HTTP and SSE, logins, and where connections may go."""
