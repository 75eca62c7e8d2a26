"""MCP in both eras: with the `initialize` handshake, and stateless."""
