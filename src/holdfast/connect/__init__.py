"""Connections to MCP servers: opening and closing them, calling tools, and answering what servers ask."""
