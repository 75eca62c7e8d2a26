"""MCP clients and servers, in both eras."""
