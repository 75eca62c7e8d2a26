"""One file per attack. The number in a file's name is its number in docs/security.md.

Numbers 8 and 26 have no file: they attack the MCP clients' door, which is not built yet.
"""
