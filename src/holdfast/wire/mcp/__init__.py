"""What MCP says over the wire, in both its eras: the handshake's and the stateless one."""
