"""Sessions for MCP: servers kept for a whole run, and tools that know who is calling."""

__version__ = "0.1.0.dev0"
