"""`holdfast up`: serve MCP clients over HTTP."""
