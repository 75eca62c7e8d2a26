"""JSON-RPC over pipes, over sockets and in memory, MCP on top of JSON-RPC, and MCP servers over HTTP."""
